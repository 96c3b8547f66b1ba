package host

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// On a developer's machine no page of another site may reach the host by a name that leads to
// 127.0.0.1.
func TestHTTPFront_AnswersOnlyLoopbackNamesInDevelopment(t *testing.T) {
	t.Parallel()
	for name, isOwn := range map[string]bool{
		"localhost": true, "localhost:7071": true, "LOCALHOST.:7071": true,
		"weir.localhost:1": true,
		"127.0.0.1:7071":   true, "127.8.0.1": true, "[::1]:7071": true,
		"evil.example": false, "evil.example:7071": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example:7071": false, "10.0.0.1": false, "": false,
	} {
		for _, isDevelopment := range []bool{true, false} {
			h := httpFront{&Host{cfg: Config{Development: isDevelopment}, app: &app{}}}
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = name
			w := httptest.NewRecorder()
			h.newHandler().ServeHTTP(w, r)
			want := http.StatusOK
			if isDevelopment && !isOwn {
				want = http.StatusMisdirectedRequest
			}

			if w.Code != want {
				t.Errorf("Host %q, development %v: got %d, want %d", name, isDevelopment,
					w.Code, want)
			}
		}
	}
}
