// Package health is the function that says whether Weir can work: GET /api/health.
package health

import (
	"context"
	"net/http"
	"time"

	"weir/internal/httpio"
)

// Check looks at one thing Weir needs. The detail is shown to anybody.
type Check func(ctx context.Context) (detail string, err error)

// Function runs checks.
type Function struct {
	Checks map[string]Check
}

// limit bounds all checks together: whoever asks wants to know soon.
const limit = 5 * time.Second

// result is one check's.
type result struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// ServeHTTP implements http.Handler: 200 when all checks pass, else 503.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	status, word, results := http.StatusOK, "ok", map[string]result{}
	for name, check := range f.Checks {
		detail, err := check(ctx)
		results[name] = result{err == nil, detail}
		if err != nil {
			status, word = http.StatusServiceUnavailable, "failing"
		}
	}
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "10")
	}
	httpio.WriteJSON(w, status, map[string]any{"status": word, "checks": results})
}
