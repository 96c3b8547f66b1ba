package remote_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/remote"
)

func TestNew(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"http://127.0.0.1:7071": true, "https://w.example/": true, "https://w.example/api": true,
		"https://w.example/below/api/": true,
		"":                             false, "w.example": false, "ftp://w.example": false,
		"https://":                       false,
		"https://w.example/?code=s3cret": false,
		"https://u:s3cret@w.example":     false, "https://w.example/#x": false,
		"http://s3cret\x7f": false,
		"127.0.0.1:7071":    false,
	} {
		c, err := remote.New(address, "")
		if (err == nil) != ok || (err != nil && strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%q: got the error %v; want the address accepted: %t, and no key in the error",
				address, err, ok)
		}

		if c != nil {
			c.Close()
		}
	}
}

// newClient returns a client of a server with the handler h. The parameter "below" is a path that
// is appended to the server's address.
func newClient(t *testing.T, below string, h http.HandlerFunc) *remote.Client {
	t.Helper()
	s := httptest.NewServer(h)
	c, err := remote.New(s.URL+below, "s3cret")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.Close(); s.Close() })

	return c
}

func TestClient_Message(t *testing.T) {
	t.Parallel()
	for below, want := range map[string]string{"": "/api/messages/a%2Fb",
		"/": "/api/messages/a%2Fb", "/api": "/api/messages/a%2Fb", "/w": "/w/api/messages/a%2Fb"} {
		c := newClient(t, below, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.EscapedPath() != want || r.URL.RawQuery != "" ||
				r.Header.Get("X-Functions-Key") != "s3cret" {
				t.Errorf("got %s %v, want EscapedPath %v, no RawQuery and X-Functions-Key s3cret",
					r.URL, r.Header, want)
			}
			w.Write([]byte(` {"id":"a/b","stage":"dead"} `))
		})
		if m, err := c.Message(t.Context(), "a/b"); err != nil || m.Value.Stage != "dead" ||
			string(m.JSON) != `{"id":"a/b","stage":"dead"}` {
			t.Errorf(`got %+v %v, want Stage dead, JSON {"id":"a/b","stage":"dead"} and no error`,
				m, err)
		}
	}
}

func TestClient_Errors(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		t.Errorf("got a request for %s with %v, want the redirect not followed", r.URL, r.Header)
	}))

	t.Cleanup(elsewhere.Close)

	for name, c := range map[string]struct {
		status              int
		header, value, body string
		kind                remote.Kind
		says                string
	}{
		"Problem": {422, "Content-Type", "application/problem+json",
			`{"detail":"two problems","problems":[{"path":"./a","message":"is missing"},{"message":"x","line":3,"column":4}]}`, remote.Refused, "422 Unprocessable Entity: two problems; ./a is missing; x (line 3, column 4)"},
		"OnlyProblemIsDetail": {400, "Content-Type", "application/problem+json",
			`{"detail":"line 2, column 1: unexpected EOF","problems":[{"message":"unexpected EOF","line":2,"column":1}]}`, remote.Refused, "400 Bad Request: line 2, column 1: unexpected EOF"},
		"PathOnce": {422, "Content-Type", "application/problem+json",
			`{"detail":"two problems","problems":[{"path":"./a","message":"./a is required"},{"path":"until","message":"two problems"}]}`, remote.Refused, "422 Unprocessable Entity: two problems; ./a is required"},
		"NoKey":       {401, "", "", "", remote.Refused, "WEIR_CODE"},
		"TheHosts404": {404, "", "", "", remote.NotFound, "no Weir at this address"},
		"Weirs404": {404, "Content-Type", "application/problem+json",
			`{"detail":"there is no such message"}`, remote.NotFound, "no such message"},
		"Conflict": {409, "Content-Type", "application/problem+json", `{"detail":"it is not dead"}`,
			remote.Refused, "it is not dead"},
		"Unavailable": {503, "Retry-After", "7", "", remote.Unavailable, "503"},
		"TooMany":     {429, "", "", "", remote.Unavailable, "429"},
		"HandlerDied": {500, "", "", "", remote.Unavailable, "500"},
		"Redirect":    {307, "Location", elsewhere.URL, "", remote.Broken, "leads elsewhere"},
		"NotJSON":     {200, "Content-Type", "text/html", "<p>", remote.Broken, "not Weir's"},
		"LyingProblem": {400, "Content-Type", "application/problem+json", `{`, remote.Refused,
			"no reason"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newClient(t, "", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(c.header, c.value)
				w.WriteHeader(c.status)
				w.Write([]byte(c.body))
			})

			_, err := cl.Message(t.Context(), "x")
			if err == nil || remote.KindOf(err) != c.kind ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got the kind %d and the error %v; want the kind %d and %q",
					remote.KindOf(err), err, c.kind, c.says)
			}
		})
	}
}

func TestClient_NoAnswer(t *testing.T) {
	t.Parallel()
	t.Run("BrokenOff", func(t *testing.T) {
		t.Parallel()
		c := newClient(t, "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte(`{"id":"x"`))
			panic(http.ErrAbortHandler)
		})
		if _, err := c.Message(t.Context(), "x"); remote.KindOf(err) != remote.Unavailable {
			t.Errorf("got the error %v, want the kind Unavailable", err)
		}
	})

	t.Run("Cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		c := newClient(t, "", func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done() // so that the client gets no answer
		})
		if _, err := c.Message(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("got the error %v, want %v", err, context.Canceled)
		}
	})

	t.Run("NoListener", func(t *testing.T) {
		t.Parallel()
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		c, err := remote.New(s.URL, "")
		if err != nil {
			t.Fatal(err)
		}

		if _, err := c.Message(t.Context(), "x"); remote.KindOf(err) != remote.Unavailable ||
			strings.Contains(err.Error(), "/api") {
			t.Errorf("got the error %v, want the kind Unavailable without the address", err)
		}
	})
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	a, b := remote.IdempotencyKey([]byte("<a/>")), remote.IdempotencyKey([]byte("<b/>"))
	if a == b || a != remote.IdempotencyKey([]byte("<a/>")) || len(a) > 255 ||
		!strings.HasPrefix(a, "sha256-") {
		t.Errorf("got the keys %q and %q, want two different keys that begin with sha256-", a, b)
	}
}

var away = &remote.Error{Kind: remote.Unavailable, Message: "away"}

func TestPatience_UntilItWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, tries, began := &remote.Patience{GiveUp: time.Minute, First: time.Second,
			Most: 4 * time.Second}, 0,
			time.Now()
		err := p.Do(t.Context(), func(context.Context) error {
			if tries++; tries < 6 {
				return away
			}
			return nil
		})

		// The longest possible pauses are 1 + 2 + 4 + 4 + 4 s. Each pause is at least half as long.
		if took := time.Since(began); err != nil || tries != 6 || took < 7500*time.Millisecond ||
			took > 15*time.Second {
			t.Errorf("got %v after %d tries in %s; want no error, 6 tries and 7.5s to 15s", err,
				tries, took)
		}
	})
}

func TestPatience_RetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, tries, began := &remote.Patience{GiveUp: time.Minute, First: time.Millisecond,
			Most: time.Second}, 0,
			time.Now()
		err := p.Do(t.Context(), func(context.Context) error {
			if tries++; tries < 2 {
				return &remote.Error{Kind: remote.Unavailable, RetryAfter: 20 * time.Second}
			}
			return nil
		})
		if took := time.Since(began); err != nil || took < 20*time.Second || took > 21*time.Second {
			t.Errorf("got %v after %s, want 20s to 21s and no error", err, took)
		}
	})
}

func TestPatience_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, began := &remote.Patience{GiveUp: time.Minute, First: time.Second,
			Most: 10 * time.Second}, time.Now()
		err := p.Do(t.Context(), func(context.Context) error { return away })
		if took := time.Since(began); remote.KindOf(err) != remote.Unavailable ||
			took > time.Minute ||
			took < 45*time.Second {
			t.Errorf("got %v after %s, want an error of kind Unavailable after 45 to 60 s", err,
				took)
		}
	})
}

func TestPatience_NeverReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reports []string
		p := &remote.Patience{GiveUp: time.Minute, First: time.Second, Most: time.Second,
			Unreached: 5 * time.Second,
			Report: func(err error, left time.Duration) {
				reports = append(reports,
					err.Error()+" "+left.String())
			}}

		began := time.Now()
		err := p.Do(t.Context(), func(context.Context) error { return away })
		if took := time.Since(began); remote.KindOf(err) != remote.Unavailable ||
			took > 5*time.Second ||
			took < 3*time.Second || !slices.Equal(reports, []string{"away 5s"}) {
			t.Errorf("got %v after %s and the reports %q; want an error after 3 to 5 s and the report \"away 5s\"", err,
				took, reports)
		}
	})
}

func TestPatience_ReachedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &remote.Patience{GiveUp: time.Minute, First: time.Second, Most: time.Second,
			Unreached: 5 * time.Second}
		tries, began := 0, time.Now()
		err := p.Do(t.Context(), func(context.Context) error {
			if tries++; tries == 1 {
				return &remote.Error{Kind: remote.Unavailable, Status: 503, Message: "starting"}
			}
			return away
		})
		if took := time.Since(began); err == nil || took < 50*time.Second {
			t.Errorf("got %v after %s; want an error after 50 s or more, because one call got an answer", err, took)
		}
	})
}

func TestPatience_AtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, tries := &remote.Patience{First: time.Second, Most: time.Second}, 0
		if err := p.Do(t.Context(), func(context.Context) error { tries++; return away }); err ==
			nil ||
			tries != 1 {
			t.Errorf("got %v after %d tries, want an error and one try", err, tries)
		}
	})
}

func TestPatience_NotWhileOthersGetThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, began := &remote.Patience{GiveUp: time.Minute, First: time.Second, Most: time.Second},
			time.Now()
		var through atomic.Int32
		go func() {
			for range 10 {
				time.Sleep(30 * time.Second)
				_ = p.Do(t.Context(), func(context.Context) error { through.Add(1); return nil })
			}
		}()

		err := p.Do(t.Context(), func(context.Context) error { return away })
		if took := time.Since(began); err == nil || through.Load() != 10 || took < 5*time.Minute {
			t.Errorf("got %v after %s and %d calls of others; want an error, 10 calls of others and at least 5m", err,
				took, through.Load())
		}
	})
}

func TestPatience_Refused(t *testing.T) {
	t.Parallel()
	p, tries := &remote.Patience{GiveUp: time.Hour, First: time.Hour, Most: time.Hour}, 0
	if err := p.Do(t.Context(),
		func(context.Context) error { tries++; return &remote.Error{Kind: remote.Refused} }); err ==
		nil ||
		tries != 1 {
		t.Errorf("got %v after %d tries, want an error and one try", err, tries)
	}
}

func TestPatience_Cancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	p := &remote.Patience{GiveUp: 3 * time.Hour, First: time.Hour, Most: time.Hour}
	if err := p.Do(ctx, func(context.Context) error { cancel(); return away }); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
