// Package sweep is the function of the timer: each minute it looks at every lane, so that
// whatever else was lost (a ticket, a process), no lane stands still for long; and it
// removes what is past its retention.
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
	twoSweeps      = 2 * time.Minute
	forgottenEvery = time.Hour
)

// Reader reads a lane's control rows.
type Reader interface {
	Control(ctx context.Context, lane int) (lane.Control, error)
}

// Waker has a lane looked at in this process: it drains it, or watches it while another
// process holds it.
type Waker interface{ Wake(lane int) }

// Retention removes what is old. Run gives back the moment before which there is nothing
// more to do in the lane, Earlier that of the lanes of earlier epochs.
type Retention interface {
	Run(ctx context.Context, lane int) (time.Time, error)
	Earlier(ctx context.Context) (time.Time, error)
	Forgotten(ctx context.Context) error
}

// Schedules runs recurring messages in this process; Load reads anew when they are due.
type Schedules interface {
	Load(ctx context.Context) error
}

// Function sweeps. All exported fields but Forgotten are needed.
type Function struct {
	Log       Reader
	Waker     Waker
	Retention Retention
	Schedules Schedules
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	// Forgotten is when forgotten bodies were last looked for, where that is known of an
	// earlier process; zero = look at once, and each hour from then on.
	Forgotten time.Time

	mu       sync.Mutex
	retained map[int]time.Time // by lane: when retention has something to do again
	earlier  time.Time         // when it has in earlier epochs
}

// Handler is the function as the host calls it.
func (f *Function) Handler() http.Handler {
	return invoke.Handler("sweep", f.Logger, func(ctx context.Context, _ invoke.Invocation) error { return f.Sweep(ctx) })
}

// Sweep passes over all lanes. One lane's failure does not keep the others from it.
func (f *Function) Sweep(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retained == nil {
		f.retained = map[int]time.Time{}
	}
	var errs []error
	if err := f.Schedules.Load(ctx); err != nil { // first, for they are for a moment
		errs = append(errs, fmt.Errorf("schedules: %w", err))
	}
	for number := range f.Lanes {
		if err := f.lane(ctx, number); err != nil {
			errs = append(errs, fmt.Errorf("lane %d: %w", number, err))
		}
	}
	if len(errs) == 0 && !f.earlier.After(f.Now()) {
		var err error
		f.earlier, err = f.Retention.Earlier(ctx)
		errs = append(errs, err)
	}
	if now := f.Now(); len(errs) == 0 && now.Sub(f.Forgotten) >= forgottenEvery {
		f.Forgotten = now
		errs = append(errs, f.Retention.Forgotten(ctx))
	}
	return errors.Join(errs...)
}

func (f *Function) lane(ctx context.Context, number int) error {
	control, err := f.Log.Control(ctx, number)
	if err != nil {
		return err
	}
	now := f.Now()
	if at, work := control.WorkAt(now); work && at.Sub(now) < twoSweeps {
		f.Waker.Wake(number)
	}
	if f.retained[number].After(now) {
		return nil
	}
	f.retained[number], err = f.Retention.Run(ctx, number)
	return err
}
