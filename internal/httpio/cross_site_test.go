package httpio_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/internal/httpio"
)

func TestRefuseCrossSite(t *testing.T) {
	t.Parallel()
	const own, evil = "https://weir.example", "https://evil.example"
	for name, c := range map[string]struct {
		method  string
		headers []string
		want    int
	}{
		"AProgram": {"POST", nil, 200},
		"OwnPage": {"POST",
			[]string{"Sec-Fetch-Site", "same-origin", "Origin", own}, 200},
		"TheAddressBar":     {"POST", []string{"Sec-Fetch-Site", "none"}, 200},
		"OwnPageOldBrowser": {"DELETE", []string{"Origin", "https://WEIR.example"}, 200},
		"ReadFromOtherSite": {"GET",
			[]string{"Sec-Fetch-Site", "cross-site", "Origin", evil}, 200},
		"WithAKey": {"POST",
			[]string{"Sec-Fetch-Site", "cross-site", "X-Functions-Key", "k"}, 200},
		"FormOfOtherSite": {"POST",
			[]string{"Sec-Fetch-Site", "cross-site", "Origin", evil}, 403},
		"ASiblingDomain":      {"POST", []string{"Sec-Fetch-Site", "same-site"}, 403},
		"AFormInAnOldBrowser": {"POST", []string{"Origin", evil}, 403},
		"ASandboxedPage":      {"POST", []string{"Origin", "null"}, 403},
		"AnotherPort":         {"PATCH", []string{"Origin", "https://weir.example:8443"}, 403},
		"AnUnreadableOrigin":  {"PUT", []string{"Origin", "http://[x"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(c.method, "https://weir.example/api/pause", nil)
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}

			w := httptest.NewRecorder()
			httpio.RefuseCrossSite(quiet, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, c.want)
			}
		})
	}
}
