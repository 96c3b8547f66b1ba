package app

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// Until storage is open, requests wait until the process has reached an age: pingHold for the host's GET of /, and
// requestHold for all other requests. So the request that starts the app is answered 202 if storage opens in time. The
// host itself waits for 30 s.
const (
	pingHold    = 10 * time.Second
	requestHold = 14 * time.Second
)

// newHandler returns the handler of all requests. The functions get a request only after storage is open. The host
// requests / until the handler is ready, and sometimes afterwards.
func (s *Server) newHandler() http.Handler {
	functions := httpio.PlainPathsOnly(s.log, http.HandlerFunc(s.serveFunctions))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			s.awaitOpen(r.Context(), pingHold)
			w.WriteHeader(http.StatusOK)
			return
		}
		functions.ServeHTTP(w, r)
	})
}

// serveFunctions passes a request to the functions as soon as storage is open. If storage does not open in time, it
// answers 503.
func (s *Server) serveFunctions(w http.ResponseWriter, r *http.Request) {
	s.awaitOpen(r.Context(), requestHold)
	if running := s.running.Load(); running != nil {
		running.handler.ServeHTTP(w, r)
		return
	}
	httpio.WriteError(w, r, s.log, &weir.Error{Kind: weir.Unavailable, Op: "start",
		Message: "storage cannot be reached yet; try again", RetryAfter: 2 * maxStorageRetry})
}

// awaitOpen waits until storage is open, until the age of the process is hold, or until ctx ends.
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
