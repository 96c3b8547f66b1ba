package poll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/clock"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// sweepInterval is the time between two sweeps. The timer of a Functions host has the same
	// interval.
	sweepInterval = time.Minute
	// maxParallelReads bounds the number of lanes that are read at the same time.
	maxParallelReads = 8
	// closeReserve is the time for the last commits and for giving up the leases. Closing can take
	// an attempt's timeout and then closeReserve.
	closeReserve = 4 * time.Second
	// interruptTimeout bounds the time for closing after a signal to end.
	interruptTimeout = 8 * time.Second
)

// Reader reads a lane's control rows.
type Reader interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
}

// Drainer drains lanes. Report returns the result of the last look at a lane, including the drain
// that followed the look. Report returns the zero value before the first look has ended, and while
// a look or a drain is under way.
type Drainer interface {
	Wake(lane int)
	Report(lane int) drain.Report
	Close(ctx context.Context) error
}

// Sweeper does the work that a timer of the Functions host triggers each minute.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// Run is the work of one process. A scheduler starts a process once per period. All fields are
// required.
type Run struct {
	Config
	Start   time.Time // beginning of the period
	Lanes   int
	Log     Reader
	Drainer Drainer // has Meter as its Sender, and Config.NotAfter(Start) as its NotAfter
	Sweeper Sweeper
	Meter   *Meter
	Now     func() time.Time
	Logger  *slog.Logger
}

// Do works until shortly before the end of the period, or until ctx ends. Then it closes the
// Drainer. The error joins the failures that lasted until the end. The summary is valid even with
// an error.
func (r *Run) Do(ctx context.Context) (Summary, error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	swept := make(chan error, 1)
	go func() { swept <- panics.Catch(func() error { return r.sweepLoop(working) }) }()
	runs, lookErr := r.wakeLoop(working)
	stop()
	lanesErr := r.laneErrors()
	closeErr := r.closeDrains(ctx)

	return r.newSummary(runs), errors.Join(lookErr, <-swept, lanesErr, closeErr)
}

// stopAt returns the time at which the work must stop. The time depends on the average of the
// attempts so far.
func (r *Run) stopAt() time.Time {
	average, known := r.Meter.Average()
	if !known {
		average = r.Estimate
	}
	return r.Start.Add(r.Period - r.reservedTime(average))
}

// errTooLate is returned if the period's work ends before the lanes were read once.
var errTooLate = errors.New("the period was over before the lanes could be read")

// wakeLoop reads the lanes at intervals of Config.Idle, and wakes the lanes with work, until the
// time of stopAt. It returns how often it read the lanes, and the error of the last read.
func (r *Run) wakeLoop(ctx context.Context) (runs int, err error) {
	err = errTooLate
	for next := r.Now(); ctx.Err() == nil; {
		now, stop := r.Now(), r.stopAt()
		switch {
		case !now.Before(stop):
			return runs, err
		case now.Before(next):
			r.waitForChange(ctx, clock.Earlier(stop, next).Sub(now))
		default:
			next = now.Add(r.Idle)
			runs++
			err = r.wakeLanesUntil(ctx, stop, err)
		}
	}

	if errors.Is(err, errTooLate) {
		err = nil // ctx ended before the first read of the lanes; this is no error
	}

	return runs, err
}

// wakeLanesUntil calls wakeLanes, cuts it off at the time "stop", and returns the error of
// wakeLanes. The argument "before" is the error of the previous call, or errTooLate in the first
// call. After a cut, the error of wakeLanes does not show whether the lanes can be read. So
// wakeLanesUntil then returns "before". In the first call there is no previous error, so
// wakeLanesUntil returns the error of wakeLanes even after a cut.
func (r *Run) wakeLanesUntil(ctx context.Context, stop time.Time, before error) error {
	limited, cancel := context.WithTimeout(ctx, stop.Sub(r.Now()))
	defer cancel()
	err := r.wakeLanes(limited)
	if err != nil && limited.Err() != nil && !errors.Is(before, errTooLate) {
		return before
	}

	if err != nil && limited.Err() == nil {
		r.Logger.Warn("poll: lanes not read", "err", err)
	}

	return err
}

// wakeLanes wakes each lane that has work now, or will have work within this period. It reads all
// lanes even if a read fails.
func (r *Run) wakeLanes(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(maxParallelReads)
	end := r.Start.Add(r.Period)
	for number := range r.Lanes {
		group.Go(panics.Guard(func() error {
			control, err := r.Log.ReadControl(ctx, number)
			if err != nil {
				return fmt.Errorf("lane %d: %w", number, err)
			}

			if at, work := control.NextWorkAt(r.Now()); work && at.Before(end) {
				r.Drainer.Wake(number)
			}

			return nil
		}))
	}

	return group.Wait()
}

// waitForChange waits for the duration d. It returns earlier if an attempt ends, because the
// average can then be different.
func (r *Run) waitForChange(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-r.Meter.averageChanged:
	case <-ctx.Done():
	}
}

// sweepLoop sweeps at once and then each minute until ctx ends. It returns the error of the last
// sweep that ctx did not cut off. It runs in parallel with wakeLoop, because a sweep can take long.
func (r *Run) sweepLoop(ctx context.Context) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	var failed error
	for {
		err := panics.Catch(func() error { return r.Sweeper.Sweep(ctx) })
		if ctx.Err() != nil {
			return failed // ctx cut this sweep off; the next process sweeps again
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

// laneErrors returns the errors that prevent the drain of a lane. It is no error if the CMS is
// unavailable, or if another process holds the lane.
func (r *Run) laneErrors() error {
	var problems []error
	for number := range r.Lanes {
		if report := r.Drainer.Report(number); report.Err != nil {
			problems = append(problems, fmt.Errorf("lane %d: %w", number, report.Err))
		}
	}
	return errors.Join(problems...)
}

// closeDrains ends all drains. It waits for the whole timeout of an attempt in flight, except after
// a signal to end.
func (r *Run) closeDrains(ctx context.Context) error {
	limit := r.Timeout + closeReserve
	if ctx.Err() != nil {
		limit = interruptTimeout
	}

	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := r.Drainer.Close(limited); err != nil {
		return fmt.Errorf("close the drains: %w", err)
	}

	return nil
}
