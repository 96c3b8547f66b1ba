package httpio_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/httpio"
)

var quiet = slog.New(slog.DiscardHandler)

// serveEcho starts a server with the handler that wrap returns. The inner handler answers 200 with
// the path that it gets.
func serveEcho(t *testing.T, wrap func(*slog.Logger, http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(wrap(quiet,
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.Path)
		})))

	t.Cleanup(s.Close)
	return s
}

func sendRequest(t *testing.T, s *httptest.Server, method, target string,
	change func(*http.Request)) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(method, s.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}

	r.URL.Opaque = target
	if change != nil {
		change(r)
	}

	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return resp.StatusCode, string(data)
}

func TestPlainPathsOnly(t *testing.T) {
	t.Parallel()
	s := serveEcho(t, httpio.PlainPathsOnly)

	// Each value is the path that the inner handler gets; "" = the answer is 404.
	for target, want := range map[string]string{
		"/api/messages":              "/api/messages",
		"/api/messages/":             "/api/messages",
		"/api/messages?x=%2F..%5C":   "/api/messages",
		"/API/Messages":              "/API/Messages",
		"/api/schedules/...":         "/api/schedules/...",
		"/api/schedules/.a/run":      "/api/schedules/.a/run",
		"/process":                   "/process",
		"/api//messages":             "",
		"/api/messages//":            "",
		"/api/messages/..":           "",
		"/api/messages/../lanes":     "",
		"/api/./lanes":               "",
		"/api/messages/%2e%2e/lanes": "",
		// An older host would decode the letter and read another path. No client needs an escaped
		// letter.
		"/api/messages/%6canes":    "",
		`/api/messages/..\lanes`:   "",
		"/api/messages/..%5Clanes": "",
		"/api/messages/a%2Fbody":   "",
		"/api/messages/%252e":      "",
		"/api/messages/a%20b":      "",
		"/api/messages/%E2%84%AA":  "",
		"/api/messages/a;b":        "",
		"/api/messages/a%00":       "",
	} {
		status, got := sendRequest(t, s, http.MethodGet, target, nil)
		switch {
		case want == "" && (status != http.StatusNotFound ||
			!strings.Contains(got, "nothing at this address")):
			t.Errorf("%s: got %d %s, want 404", target, status, got)
		case want != "" && (status != http.StatusOK || got != want):
			t.Errorf("%s: got %d %s, want 200 %s", target, status, got, want)
		}
	}
}

func TestHostCallsOnly(t *testing.T) {
	t.Parallel()
	s := serveEcho(t, httpio.HostCallsOnly)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for name, c := range map[string]struct {
		target string
		change func(*http.Request)
		want   int
	}{
		"TheHost": {"/process", header("User-Agent", "Azure-Functions-Host/4.1037.0.0"), 200},
		"WithATrace": {"/process",
			header("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"), 200},
		"Forwarded": {"/process",
			func(r *http.Request) { r.Host = "weir.example" }, 404},
		"ForwardedFromLoopback": {"/process",
			func(r *http.Request) { r.Host = "127.0.0.1:7071" }, 404},
		"Proxied":            {"/process", header("X-Forwarded-Host", "weir.example"), 404},
		"BehindAFrontEnd":    {"/process", header("X-Forwarded-For", "192.0.2.1"), 404},
		"WithAKey":           {"/process", header("X-Functions-Key", "k"), 404},
		"WithAKeyInTheQuery": {"/process?code=k", nil, 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if status, body := sendRequest(t, s, http.MethodPost, c.target, c.change); status !=
				c.want {
				t.Errorf("got %d %s, want %d", status, body, c.want)
			}
		})
	}
}

// An older Functions host closes the client's connection after a 304. So NotModified must not
// answer 304 to a request from such a host (the cases whose names begin with Forwarded).
func TestNotModified_OnlyIfTheHostRelaysIt(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpio.NotModified(w, r, "v1") {
			w.WriteHeader(http.StatusOK)
		}
	}))

	t.Cleanup(s.Close)

	for name, c := range map[string]struct {
		host    string // the header Host; empty = the handler's address
		headers []string
		want    int
	}{
		"CalledDirectly":        {"", nil, 304},
		"CalledDirectlyByAName": {"weir.example", nil, 304},
		"Proxied": {"",
			[]string{httpio.InvocationHeader, "1", "X-Forwarded-Host", "weir.example"}, 304},
		"Forwarded": {"weir.example", []string{httpio.InvocationHeader, "1"}, 200},
		"ForwardedByAFrontEnd": {"weir.example",
			[]string{httpio.InvocationHeader, "1", "X-Forwarded-Host", "weir.example"}, 200},
		"ForwardedFromLoopback": {"127.0.0.1:7071",
			[]string{httpio.InvocationHeader, "1", "X-Forwarded-Host", "127.0.0.1:7071"}, 200},
		"ForwardedWithASpoofedID": {"weir.example",
			[]string{httpio.InvocationHeader, "spoof, 9d90"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, _ := sendRequest(t, s, http.MethodGet, "/x", func(r *http.Request) {
				if c.host != "" {
					r.Host = c.host
				}

				for i := 0; i < len(c.headers); i += 2 {
					r.Header.Set(c.headers[i], c.headers[i+1])
				}

				r.Header.Set("If-None-Match", `"v1"`)
			})
			if status != c.want {
				t.Errorf("got %d, want %d", status, c.want)
			}
		})
	}
}

// A client can send X-Forwarded-Host, too. So BaseURL trusts only the last element, and only if the
// Functions host wrote that element (the cases whose names begin with Proxied).
func TestBaseURL_BehindProxies(t *testing.T) {
	t.Parallel()
	own := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7071}
	for name, c := range map[string]struct {
		host    string
		headers []string
		want    string
	}{
		"Direct": {"example.com", nil, "http://example.com"},
		"Forwarded": {"example.com", []string{"X-Forwarded-Proto", "https, http"},
			"https://example.com"},
		"ForwardedSpoof": {"example.com", []string{"X-Forwarded-Host", "evil.example"},
			"http://example.com"},
		"Proxied": {own.String(),
			[]string{"X-Forwarded-Proto", "HTTPS,http", "X-Forwarded-Host", "weir.example"},
			"https://weir.example"},
		"ProxiedSpoof": {own.String(),
			[]string{"X-Forwarded-Proto", "ftp", "X-Forwarded-Host",
				" evil.example, weir.example:444 "},
			"http://weir.example:444"},
		"ProxiedTwoLines": {own.String(),
			[]string{"X-Forwarded-Host", "evil.example", "X-Forwarded-Host", "weir.example"},
			"http://weir.example"},
		"ProxiedInvalidName": {own.String(), []string{"X-Forwarded-Host", "evil.example/x?"},
			"http://127.0.0.1:7071"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(),
				http.LocalAddrContextKey, net.Addr(own)), http.MethodGet, "/", nil)
			r.Host = c.host
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Add(c.headers[i], c.headers[i+1])
			}

			if got := httpio.BaseURL(r); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
