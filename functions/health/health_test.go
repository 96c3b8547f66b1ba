package health_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/functions/health"
)

func getHealth(ctx context.Context, h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/health", nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestFunction(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) (string, error) { return "", nil }
	bad := func(context.Context) (string, error) {
		return "the table cannot be read",
			errors.New("dial 10.0.0.1")
	}
	for name, c := range map[string]struct {
		checks          map[string]health.Check
		status          int
		public, details string
	}{
		"OK": {map[string]health.Check{"storage": ok}, 200, `{"status":"ok"}`,
			`{"status":"ok","checks":{"storage":{"ok":true}}}`},
		"Down": {map[string]health.Check{"storage": bad, "clock": ok}, 503, `{"status":"failing"}`,
			`{"status":"failing","checks":{"clock":{"ok":true},` +
				`"storage":{"ok":false,"detail":"the table cannot be read"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := health.New(c.checks, time.Now)
			if status, body := getHealth(t.Context(), f); status != c.status || body != c.public {
				t.Errorf("without a key: got %d %s, want %d %s", status, body, c.status, c.public)
			}

			if status, body := getHealth(t.Context(), f.Details()); status != c.status ||
				body != c.details {
				t.Errorf("details: got %d %s, want %d %s", status, body, c.status, c.details)
			}
		})
	}
}

// GET /api/health needs no key, so anyone can call it often. A hundred calls must cost storage no
// more than one call.
func TestFunction_SharesAReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs, failing := 0, false
		f := health.New(map[string]health.Check{
			"storage": func(context.Context) (string, error) {
				runs++
				time.Sleep(time.Second)
				if failing {
					return "", errors.New("away")
				}
				return "", nil
			}}, time.Now)

		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { getHealth(t.Context(), f) })
		}

		all.Wait()
		getHealth(t.Context(), f.Details())
		if runs != 1 {
			t.Errorf("got %d runs for 101 calls, want 1", runs)
		}

		failing = true
		time.Sleep(5 * time.Second)
		if status, _ := getHealth(t.Context(), f); status != 503 || runs != 2 {
			t.Errorf("5 s later: got %d after %d runs, want 503 after 2", status, runs)
		}
	})
}

// A caller that disconnects does not end the checks, because other callers share the report.
func TestFunction_FinishesForACallerThatDisconnects(t *testing.T) {
	t.Parallel()
	f := health.New(map[string]health.Check{
		"storage": func(ctx context.Context) (string, error) { return "", ctx.Err() }}, time.Now)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	getHealth(gone, f)
	if status, body := getHealth(t.Context(), f); status != 200 {
		t.Errorf("got %d %s, want 200", status, body)
	}
}
