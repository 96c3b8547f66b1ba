// Package sweep is the function that a timer triggers each minute. It looks at every lane, so that waiting messages are
// delivered even if a ticket or a process was lost. It also reads the schedules of recurring messages, takes the files
// of the inbox, and begins the removal of messages and bodies past their retention.
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
	"weir/internal/panics"
)

const (
	// wakeAhead spans two sweeps. A sweep wakes a lane if the lane's next work is due within this time.
	wakeAhead = 2 * time.Minute
	// sweepLimit bounds the time of a sweep. It is far below the functionTimeout of 5 min in host.json. After
	// functionTimeout the host would restart this process, and so interrupt the delivery in all lanes of this process.
	sweepLimit = time.Minute
)

// Reader reads a lane's control rows.
type Reader interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
}

// Waker makes this process work on a lane, or enqueues a ticket for the lane.
type Waker interface{ Wake(lane int) }

// RoundBeginner begins rounds of retention; see package upkeep. BeginRound begins a round in the background, and
// returns at once.
type RoundBeginner interface{ BeginRound() }

// Schedules runs recurring messages. Load reads all schedules from storage, so that a schedule runs even if the process
// that stored the schedule has died.
type Schedules interface {
	Load(ctx context.Context) error
}

// Inbox takes the files that other systems put into the inbox; see inbox.Collector.
type Inbox interface {
	Collect(ctx context.Context) error
}

// Function looks at all lanes. All exported fields are required, except Inbox.
type Function struct {
	Log       Reader
	Waker     Waker
	Upkeep    RoundBeginner
	Schedules Schedules
	Inbox     Inbox // nil = weir.yaml has no intake.files
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	once sync.Once
	turn chan struct{} // is full while a call of sweepLanes runs, so that a second call waits
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler {
	return invoke.Handler("sweep", f.Logger, func(ctx context.Context, _ invoke.Invocation) error {
		return f.Sweep(ctx)
	})
}

// Sweep reads the schedules and looks at all lanes. Meanwhile it takes the files of the inbox. If one part fails, Sweep
// still does the other parts, and returns all errors. Sweep takes sweepLimit at most.
func (f *Function) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	var files sync.WaitGroup
	var filesErr error
	if f.Inbox != nil {
		files.Go(func() { // the lanes must not wait for the files, which can need all of sweepLimit
			err := panics.Catch(func() error { return f.Inbox.Collect(ctx) })
			if err != nil {
				filesErr = fmt.Errorf("inbox: %w", err)
			}
		})
	}
	err := f.sweepLanes(ctx)
	files.Wait()
	return errors.Join(err, filesErr)
}

// sweepLanes reads the schedules, looks at all lanes, and calls Upkeep.BeginRound. Calls at the same time run one
// after the other.
func (f *Function) sweepLanes(ctx context.Context) error {
	f.once.Do(func() { f.turn = make(chan struct{}, 1) })
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer f.Upkeep.BeginRound()
	errs := make([]error, f.Lanes+1)
	if err := f.Schedules.Load(ctx); err != nil { // before the lanes, so that slow lanes delay no recurring message
		errs[f.Lanes] = fmt.Errorf("schedules: %w", err)
	}
	_ = lane.ForEach(f.Lanes, func(number int) error {
		if err := f.wakeIfDue(ctx, number); err != nil {
			errs[number] = fmt.Errorf("lane %d: %w", number, err)
		}
		return nil
	})
	return errors.Join(errs...)
}

func (f *Function) wakeIfDue(ctx context.Context, number int) error {
	control, err := f.Log.ReadControl(ctx, number)
	if err != nil {
		return err
	}
	now := f.Now()
	at, hasWork := control.NextWorkAt(now)
	if hasWork && at.Sub(now) < wakeAhead || control.Tail.HolderFence() != 0 { // the holder may have crashed
		f.Waker.Wake(number)
	}
	return nil
}
