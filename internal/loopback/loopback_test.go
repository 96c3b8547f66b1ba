package loopback_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/internal/loopback"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	guarded := loopback.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))

	for host, want := range map[string]int{
		"localhost": 204, "localhost:7072": 204, "LOCALHOST.:7072": 204, "cms.localhost:7072": 204,
		"127.0.0.1:7072": 204, "127.1.2.3": 204, "[::1]:7072": 204, "[::1]": 204,
		"evil.example": 421, "evil.example:7072": 421, "127.0.0.1.evil.example": 421,
		"localhost.evil.example:80": 421, "10.0.0.1:7072": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, "/stats", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("host %q: got %d, want %d", host, w.Code, want)
		}
	}
}
