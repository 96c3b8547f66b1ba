package httpio_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// WriteError logs a failure at level debug if the client has disconnected and the failure can be a
// result of the disconnect. Otherwise the level is error.
func TestWriteError_ClientGone(t *testing.T) {
	t.Parallel()
	unavailable := &weir.Error{Kind: weir.Unavailable, Message: "storage cannot be reached",
		Err: errors.New("no answer")}
	for name, c := range map[string]struct {
		gone bool // the client has disconnected
		err  error
		want string // level of the log line about the failure
	}{
		"Stays":                {false, unavailable, "ERROR"},
		"Unavailable":          {true, unavailable, "DEBUG"},
		"CutOff":               {true, context.Canceled, "DEBUG"},
		"ADefect":              {true, errors.New("index out of range"), "ERROR"},
		"CutOffByAnotherCause": {false, context.Canceled, "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := httpio.Middleware("view", log, time.Now,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.gone {
						cancel()
					}
					httpio.WriteError(w, r, log, c.err)
				}))

			h.ServeHTTP(httptest.NewRecorder(),
				httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			failed, answered, _ := strings.Cut(out.String(), "\n")
			if !strings.Contains(failed, "level="+c.want) ||
				!strings.Contains(failed, "http: failed") {
				t.Errorf("got the line %s, want the level %s", failed, c.want)
			}

			if isQuiet := strings.Contains(answered, "level=DEBUG"); isQuiet != c.gone {
				t.Errorf("got the line %s, want the level DEBUG: %t", answered, c.gone)
			}
		})
	}
}

func TestIgnoreDisconnect(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got error
	httpio.IgnoreDisconnect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Context().Err() })).
		ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	if got != nil {
		t.Errorf("got %v, want a context without an error", got)
	}
}
