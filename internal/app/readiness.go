package app

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// While storage is not open, requests wait until the process has a certain age: pingHold for
// requests to /, and requestHold for all others. So a post that starts the app is answered 202 if
// storage opens in time. Both ages are below the 30 s for which the host waits for the handler to
// start.
const (
	pingHold    = 10 * time.Second
	requestHold = 14 * time.Second
)

// newHandler returns the handler of all requests. The host requests / until the handler is ready,
// and sometimes afterwards. All other requests are for the functions.
func (s *Server) newHandler() http.Handler {
	functions := httpio.PlainPathsOnly(s.log, http.HandlerFunc(s.serveFunctions))
	if s.alone != nil {
		return s.alone.newHandler(functions)
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			s.awaitOpen(r.Context(), pingHold)
			w.WriteHeader(http.StatusOK)
			return
		}
		functions.ServeHTTP(w, r)
	})
}

// serveFunctions passes a request to the functions as soon as storage is open. If storage does not
// open in time, serveFunctions answers 503.
func (s *Server) serveFunctions(w http.ResponseWriter, r *http.Request) {
	s.awaitOpen(r.Context(), requestHold)
	if running := s.running.Load(); running != nil {
		running.handler.ServeHTTP(w, r)
		return
	}

	httpio.WriteError(w, r, s.log, &weir.Error{Kind: weir.Unavailable, Op: "start",
		Message: "storage cannot be reached yet; try again", RetryAfter: 2 * maxStorageRetry})
}

// awaitOpen returns when storage is open, when the process is as old as hold, or when ctx ends.
func (s *Server) awaitOpen(ctx context.Context, hold time.Duration) {
	select {
	case <-s.opened: // the usual case, which needs no timer
		return
	default:
	}

	timer := time.NewTimer(time.Until(s.startedAt.Add(hold)))
	defer timer.Stop()

	select {
	case <-s.opened:
	case <-timer.C:
	case <-ctx.Done():
	}
}
