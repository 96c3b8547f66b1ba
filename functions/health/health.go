// Package health is the function that reports whether Weir can work: GET /api/health.
package health

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
)

// Check checks one dependency of Weir, and returns an error if the dependency does not work. The
// handler of Details shows the text "detail". No answer shows the error.
type Check func(ctx context.Context) (detail string, err error)

// Function runs checks, and answers with a report. It makes at most one report per reportAge. GET
// /api/health needs no key, so without this limit anybody could load storage with frequent calls.
type Function struct {
	checks map[string]Check
	now    func() time.Time

	turn chan struct{} // holds a value while a caller reads or makes the report
	last report
}

// New returns a Function that runs the checks. The key of a check is its name in the report of
// Details.
func New(checks map[string]Check, now func() time.Time) *Function {
	return &Function{checks: checks, now: now, turn: make(chan struct{}, 1)}
}

const (
	// maxCheckTime limits the time of all checks together, because monitors wait only a few
	// seconds.
	maxCheckTime = 5 * time.Second
	// reportAge is the time for which a report is used again.
	reportAge = 5 * time.Second
)

// report is the JSON form of the results. Checks is nil in answers to GET /api/health, because
// callers without a key must not see the names of the checks.
type report struct {
	Status string                 `json:"status"`
	Checks map[string]checkResult `json:"checks,omitempty"`
	madeAt time.Time
}

type checkResult struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// ServeHTTP implements http.Handler. The answer is 200 if all checks pass, and otherwise 503. The
// answer names no check.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	last := f.currentReport(r.Context())
	last.Checks = nil
	last.write(w)
}

// Details returns the handler that answers with the same status as ServeHTTP, and also names each
// check.
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

// currentReport returns the last report, or makes a new one if the last report is too old.
// Meanwhile other callers wait. A disconnect of the caller does not end the checks, because other
// callers share the report.
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
