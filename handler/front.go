package main

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// The program holds the host's question whether it is ready until the process is pingHold old,
// and requests until it is requestHold old: the request that wakes the app is answered 202 if
// storage opens within that time. The host itself waits for 30 s.
const (
	pingHold    = 10 * time.Second
	requestHold = 14 * time.Second
)

// front lets requests in once storage is open. The host asks for / until the handler is ready,
// and now and then afterwards.
func (p *Program) front() http.Handler {
	functions := httpio.PlainPathsOnly(p.log, http.HandlerFunc(p.serveFunctions))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			p.awaitOpen(r.Context(), pingHold)
			w.WriteHeader(http.StatusOK)
			return
		}
		functions.ServeHTTP(w, r)
	})
}

// serveFunctions serves the functions as soon as storage is open.
func (p *Program) serveFunctions(w http.ResponseWriter, r *http.Request) {
	p.awaitOpen(r.Context(), requestHold)
	if routes := p.ready.Load(); routes != nil {
		(*routes).ServeHTTP(w, r)
		return
	}
	httpio.WriteError(w, r, p.log, &weir.Error{Kind: weir.Unavailable, Op: "start", Message: "storage cannot be reached yet; try again", RetryAfter: 2 * storageRetry})
}

// awaitOpen waits until storage is open, until the process is as old as held, or until ctx
// ends.
func (p *Program) awaitOpen(ctx context.Context, held time.Duration) {
	select {
	case <-p.opened: // nearly always: without a timer
		return
	default:
	}
	timer := time.NewTimer(time.Until(p.began.Add(held)))
	defer timer.Stop()
	select {
	case <-p.opened:
	case <-timer.C:
	case <-ctx.Done():
	}
}
