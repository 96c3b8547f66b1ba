package httpio_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/httpio"
)

// As many bodies are read at a time as have room. A further read waits for up to five seconds, and
// is then refused; it is served if a read ends before.
func TestReads_Limit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, maxBody, atOnce int64 }{
		"Three": {60, 10, 3}, "NoRoom": {10, 1000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				takes := time.Minute
				h := httpio.NewReads(c.size, c.maxBody).Limit(slog.New(slog.DiscardHandler),
					http.HandlerFunc(
						func(http.ResponseWriter, *http.Request) { time.Sleep(takes) }))
				serve := func() (status int, took time.Duration) {
					began, w := time.Now(), httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
					return w.Code, time.Since(began)
				}

				for range c.atOnce {
					go serve()
				}

				synctest.Wait()

				if status, took := serve(); status != http.StatusServiceUnavailable ||
					took != 5*time.Second {
					t.Errorf("read %d: got %d after %s, want 503 after 5s", c.atOnce+1,
						status, took)
				}

				time.Sleep(52 * time.Second)
				takes = time.Second

				if status, took := serve(); status != http.StatusOK || took != 4*time.Second {
					t.Errorf("3 s before the reads end: got %d after %s, want 200 after 4s",
						status, took)
				}
			})
		})
	}
}
