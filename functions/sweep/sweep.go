// Package sweep is the function that a timer triggers each minute. It looks at every lane; see
// package sweeper.
package sweep

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/invoke"
	"weir/internal/sweeper"
)

// Function sweeps when the timer calls. All fields are required.
type Function struct {
	Sweeper *sweeper.Sweeper
	Logger  *slog.Logger
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler {
	return invoke.Handler("sweep", f.Logger, func(ctx context.Context, _ invoke.Invocation) error {
		return f.Sweeper.Sweep(ctx)
	})
}
