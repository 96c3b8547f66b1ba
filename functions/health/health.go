// Package health is the function that reports whether Weir can work: GET /api/health.
package health

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
)

// Check checks one dependency of Weir. The detail is public.
type Check func(ctx context.Context) (detail string, err error)

// Function runs checks.
type Function struct {
	Checks map[string]Check
}

// maxCheckTime limits all checks together, because monitors wait only a few seconds.
const maxCheckTime = 5 * time.Second

// checkResult is the JSON form of one check.
type checkResult struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// ServeHTTP implements http.Handler: it answers 200 if all checks pass, else 503.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), maxCheckTime)
	defer cancel()
	status, word, results := http.StatusOK, "ok", map[string]checkResult{}
	for name, check := range f.Checks {
		detail, err := check(ctx)
		results[name] = checkResult{err == nil, detail}
		if err != nil {
			status, word = http.StatusServiceUnavailable, "failing"
		}
	}
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "10")
	}
	httpio.WriteJSON(w, status, map[string]any{"status": word, "checks": results})
}
