// Package health is the function that reports whether Weir can work: GET /api/health.
package health

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
)

// Check checks one dependency of Weir. It fails if it returns an error. A caller with the function key of "view" can
// read the detail, but not the error.
type Check func(ctx context.Context) (detail string, err error)

// Function runs checks. All callers share one report for reportAge: GET /api/health needs no key, so without
// sharing anybody could load storage with frequent calls.
type Function struct {
	checks map[string]Check
	now    func() time.Time

	turn chan struct{} // has one value while a caller reads or makes the report
	last report
}

// New returns a Function.
func New(checks map[string]Check, now func() time.Time) *Function {
	return &Function{checks: checks, now: now, turn: make(chan struct{}, 1)}
}

const (
	// maxCheckTime limits the time of all checks together, because monitors wait only a few seconds.
	maxCheckTime = 5 * time.Second
	// reportAge is the time for which callers share a report.
	reportAge = 5 * time.Second
)

// report is the JSON form of all checks. Checks is nil in answers to GET /api/health.
type report struct {
	Status string                 `json:"status"`
	Checks map[string]checkResult `json:"checks,omitempty"`
	madeAt time.Time
}

// checkResult is the JSON form of one check.
type checkResult struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// ServeHTTP implements http.Handler. It answers 200 if all checks pass, and otherwise 503. It names no check.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	last := f.currentReport(r.Context())
	last.Checks = nil
	last.write(w)
}

// Details returns the handler that answers with the same status as ServeHTTP, and also names each check.
func (f *Function) Details() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.currentReport(r.Context()).write(w) })
}

func (r report) write(w http.ResponseWriter) {
	status := http.StatusOK
	if r.Status != "ok" {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "10")
	}
	httpio.WriteJSON(w, status, r)
}

// currentReport returns the shared report. If the report is too old, currentReport makes another one, and other
// callers wait for it. The checks go on if the caller that started them disconnects, because other callers
// share the result.
func (f *Function) currentReport(ctx context.Context) report {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	if age := f.now().Sub(f.last.madeAt); age >= 0 && age < reportAge {
		return f.last
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCheckTime)
	defer cancel()
	made := f.runChecks(limited)
	made.madeAt = f.now()
	f.last = made
	return made
}

func (f *Function) runChecks(ctx context.Context) report {
	r := report{Status: "ok", Checks: map[string]checkResult{}}
	for name, check := range f.checks {
		detail, err := check(ctx)
		r.Checks[name] = checkResult{err == nil, detail}
		if err != nil {
			r.Status = "failing"
		}
	}
	return r
}
