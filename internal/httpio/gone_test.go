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

// TestWriteError_ClientGone: of a client that went away no operator needs to know, and of a failure
// that has nothing to do with it he does.
func TestWriteError_ClientGone(t *testing.T) {
	t.Parallel()
	away := &weir.Error{Kind: weir.Unavailable, Message: "storage cannot be reached", Err: errors.New("no answer")}
	for name, c := range map[string]struct {
		gone bool
		err  error
		want string // the level of the line about the failure
	}{
		"Stays":             {false, away, "ERROR"},
		"Unavailable":       {true, away, "DEBUG"},
		"CutOff":            {true, context.Canceled, "DEBUG"},
		"ADefect":           {true, errors.New("index out of range"), "ERROR"},
		"CutOffBySomething": {false, context.Canceled, "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := httpio.Wrap("view", log, time.Now, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.gone {
					cancel()
				}
				httpio.WriteError(w, r, log, c.err)
			}))
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			failed, answered, _ := strings.Cut(out.String(), "\n")
			if !strings.Contains(failed, "level="+c.want) || !strings.Contains(failed, "http: failed") {
				t.Errorf("got %s, want level %s", failed, c.want)
			}
			if isQuiet := strings.Contains(answered, "level=DEBUG"); isQuiet != c.gone {
				t.Errorf("got %s, want level DEBUG: %t", answered, c.gone)
			}
		})
	}
}

func TestToTheEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got error
	httpio.ToTheEnd(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Context().Err() })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	if got != nil {
		t.Errorf("got %v, want a context that goes on", got)
	}
}
