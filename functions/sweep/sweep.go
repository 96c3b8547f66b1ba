// Package sweep is the function of the timer: each minute it looks at every lane, so that a lane does not stand
// still for long if a ticket or a process was lost. It also reads the schedules of recurring messages, and takes
// the files of the inbox. Each sweep begins a round of the Cleaner, which removes messages and bodies past their
// retention. No invocation waits for that round.
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
	// A lane is woken if its next work is due within wakeAhead, which spans two sweeps.
	wakeAhead = 2 * time.Minute
	// sweepLimit bounds the time of a sweep. If an invocation took longer than host.json's functionTimeout of 5 min,
	// the host would restart the handler, and with it every drain.
	sweepLimit = time.Minute
)

// Reader reads a lane's control rows.
type Reader interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
}

// Waker wakes a lane in this process. The process drains the lane, or watches it while another process holds
// it.
type Waker interface{ Wake(lane int) }

// RoundBeginner begins a round of removal in the background, and returns at once.
type RoundBeginner interface{ BeginRound() }

// Schedules runs recurring messages in this process. Load reads all schedules. So this process also runs the
// schedules of a process that has died.
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
	Cleaner   RoundBeginner
	Schedules Schedules
	Inbox     Inbox // nil = weir.yaml has no intake.files
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	once sync.Once
	turn chan struct{} // lets one sweep of the lanes run at a time in this process
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler {
	return invoke.Handler("sweep", f.Logger, func(ctx context.Context, _ invoke.Invocation) error {
		return f.Sweep(ctx)
	})
}

// Sweep reads the schedules, looks at all lanes, a few at a time, and meanwhile takes the files of the inbox. If one
// of these fails, Sweep still does the others, and it returns all errors. It returns when it has looked at every lane
// and taken the files, or when sweepLimit is over.
func (f *Function) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	var files sync.WaitGroup
	var filesErr error
	if f.Inbox != nil {
		files.Go(func() { // files can take the whole time, and the lanes must not wait for them
			if err := f.Inbox.Collect(ctx); err != nil {
				filesErr = fmt.Errorf("inbox: %w", err)
			}
		})
	}
	err := f.sweepLanes(ctx)
	files.Wait()
	return errors.Join(err, filesErr)
}

// sweepLanes reads the schedules, looks at all lanes, and begins a round of the Cleaner. If another sweep of the
// lanes is under way in this process, sweepLanes first waits for its end.
func (f *Function) sweepLanes(ctx context.Context) error {
	f.once.Do(func() { f.turn = make(chan struct{}, 1) })
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer f.Cleaner.BeginRound()
	errs := make([]error, f.Lanes+1)
	if err := f.Schedules.Load(ctx); err != nil { // first, because a recurring message is due at a certain time
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

// wakeIfDue wakes a lane that has work now, or will have work within wakeAhead.
func (f *Function) wakeIfDue(ctx context.Context, number int) error {
	control, err := f.Log.ReadControl(ctx, number)
	if err != nil {
		return err
	}
	now := f.Now()
	if at, hasWork := control.NextWorkAt(now); hasWork && at.Sub(now) < wakeAhead {
		f.Waker.Wake(number)
	}
	return nil
}
