// Package sweep is the function of the timer: each minute it looks at every lane, so that
// whatever else was lost (a ticket, a process), no lane stands still for long. Each sweep also
// begins a round of the Cleaner, which removes messages and bodies past their retention. No
// invocation waits for that.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weir/internal/invoke"
	"weir/internal/lane"
)

const (
	twoSweeps = 2 * time.Minute
	// limit bounds the time of a sweep. The host restarts the handler, and with it every drain,
	// when an invocation takes longer than host.json's functionTimeout of 5 min.
	limit = time.Minute
)

// Reader reads a lane's control rows.
type Reader interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
}

// Waker has a lane looked at in this process: it drains it, or watches it while another
// process holds it.
type Waker interface{ Wake(lane int) }

// Nudger begins a round of removal in the background, and returns at once.
type Nudger interface{ Nudge() }

// Schedules runs recurring messages in this process; Load reads anew when they are due.
type Schedules interface {
	Load(ctx context.Context) error
}

// Function sweeps. All exported fields are needed.
type Function struct {
	Log       Reader
	Waker     Waker
	Cleaner   Nudger
	Schedules Schedules
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	once sync.Once
	turn chan struct{} // one sweep of a process at a time
}

// Handler is the function as the host calls it.
func (f *Function) Handler() http.Handler {
	return invoke.Handler("sweep", f.Logger, func(ctx context.Context, _ invoke.Invocation) error { return f.Sweep(ctx) })
}

// Sweep looks at all lanes, a few at a time; a lane that fails does not stop the others. It
// returns when it has looked at every lane, or when its time is over.
func (f *Function) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f.once.Do(func() { f.turn = make(chan struct{}, 1) })
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer f.Cleaner.Nudge()
	errs := make([]error, f.Lanes+1)
	if err := f.Schedules.Load(ctx); err != nil { // first, for they are for a moment
		errs[f.Lanes] = fmt.Errorf("schedules: %w", err)
	}
	_ = lane.ForEach(f.Lanes, func(number int) error {
		if err := f.look(ctx, number); err != nil {
			errs[number] = fmt.Errorf("lane %d: %w", number, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

func (f *Function) look(ctx context.Context, number int) error {
	control, err := f.Log.ReadControl(ctx, number)
	if err != nil {
		return err
	}
	now := f.Now()
	if at, work := control.NextWorkAt(now); work && at.Sub(now) < twoSweeps {
		f.Waker.Wake(number)
	}
	return nil
}
