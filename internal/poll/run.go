package poll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/drain"
	"weir/internal/lane"
)

const (
	// sweepEvery is how often a long period is swept: as often as the timer of a host would.
	sweepEvery = time.Minute
	// looksAtOnce bounds the lanes that are looked at at the same time.
	looksAtOnce = 8
	// leaveTime is what leaving may take beyond the timeout of an attempt under way: the
	// last commits and the releases.
	leaveTime = 4 * time.Second
	// interruptTime is what leaving may take when the process is told to end.
	interruptTime = 8 * time.Second
)

// Reader reads a lane's control rows.
type Reader interface {
	Control(ctx context.Context, lane int) (lane.Control, error)
}

// Drainer drains lanes. Report tells of one lane: the zero value while it is being drained.
type Drainer interface {
	Wake(lane int)
	Report(lane int) drain.Report
	Close(ctx context.Context) error
}

// Sweeper does the work of the timer.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// Run is one period's work. All fields are needed.
type Run struct {
	Config
	Start   time.Time // when the period began
	Lanes   int
	Log     Reader
	Drainer Drainer // its Sender is the Meter, its NotAfter the Config's
	Sweeper Sweeper
	Meter   *Meter
	Now     func() time.Time
	Logger  *slog.Logger
}

// Do works until just before the period's end, or until ctx ends, and leaves in order. The
// error says what failed and had not come right again by then; the summary stands also
// beside an error. It closes the Drainer.
func (r *Run) Do(ctx context.Context) (Summary, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	swept := make(chan error, 1)
	go func() { swept <- r.sweeps(working) }()
	runs, lookErr := r.looks(working)
	stop()
	lanesErr := r.trouble()
	closeErr := r.leave(ctx)
	return r.summary(runs), errors.Join(lookErr, <-swept, lanesErr, closeErr)
}

// stopAt is the moment from which nothing more is begun, by what is known now.
func (r *Run) stopAt() time.Time {
	average, known := r.Meter.Average()
	if !known {
		average = r.Estimate
	}
	return r.Start.Add(r.Period - r.reserve(average))
}

// errTooLate is the failure of a run that came to nothing.
var errTooLate = errors.New("the period was over before the lanes could be looked at")

// looks looks at the lanes each idle until it is time to stop, and says how often it did,
// and why the last time failed, if it did.
func (r *Run) looks(ctx context.Context) (runs int, err error) {
	err = errTooLate
	for next := r.Now(); ctx.Err() == nil; {
		now, stop := r.Now(), r.stopAt()
		switch {
		case !now.Before(stop):
			return runs, err
		case now.Before(next):
			r.pause(ctx, earlier(stop, next).Sub(now))
		default:
			next = now.Add(r.Idle)
			runs++
			err = r.lookUntil(ctx, stop, err)
		}
	}
	if errors.Is(err, errTooLate) {
		err = nil // told to end before
	}
	return runs, err
}

// lookUntil looks once. A look that the end has cut off says nothing: what was known
// before it stands.
func (r *Run) lookUntil(ctx context.Context, stop time.Time, before error) error {
	limited, cancel := context.WithTimeout(ctx, stop.Sub(r.Now()))
	defer cancel()
	err := r.look(limited)
	if err != nil && limited.Err() != nil && !errors.Is(before, errTooLate) {
		return before
	}
	if err != nil && limited.Err() == nil {
		r.Logger.Warn("poll: lanes not looked at", "err", err)
	}
	return err
}

// look wakes every lane that has work, or will have within this period. One lane's failure
// does not keep the others from it.
func (r *Run) look(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(looksAtOnce)
	end := r.Start.Add(r.Period)
	for number := range r.Lanes {
		group.Go(func() error {
			control, err := r.Log.Control(ctx, number)
			if err != nil {
				return fmt.Errorf("lane %d: %w", number, err)
			}
			if at, work := control.WorkAt(r.Now()); work && at.Before(end) {
				r.Drainer.Wake(number)
			}
			return nil
		})
	}
	return group.Wait()
}

// pause waits, at most until the average may be another.
func (r *Run) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Meter.moved:
	case <-ctx.Done():
	}
}

// sweeps sweeps at once and each minute until ctx ends, and says why the last sweep
// failed, if it did. It runs beside the looks: removing what is old may take long.
func (r *Run) sweeps(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var failed error
	for {
		err := r.Sweeper.Sweep(ctx)
		if ctx.Err() != nil {
			return failed // cut off: what it left, the next one does
		}
		failed = nil
		if err != nil {
			r.Logger.Warn("poll: sweep incomplete", "err", err)
			failed = fmt.Errorf("sweep: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return failed
		}
	}
}

// trouble is what keeps lanes from being drained at this moment, beside what is nobody's
// fault here: a CMS that is away, another holder.
func (r *Run) trouble() error {
	var problems []error
	for number := range r.Lanes {
		if report := r.Drainer.Report(number); report.Err != nil {
			problems = append(problems, fmt.Errorf("lane %d: %w", number, report.Err))
		}
	}
	return errors.Join(problems...)
}

// leave ends all drains. An attempt under way has time for its timeout, unless the process
// was told to end.
func (r *Run) leave(ctx context.Context) error {
	limit := r.Timeout + leaveTime
	if ctx.Err() != nil {
		limit = interruptTime
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := r.Drainer.Close(limited); err != nil {
		return fmt.Errorf("leave the lanes: %w", err)
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
