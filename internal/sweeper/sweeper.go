// Package sweeper looks at every lane once a minute, so that waiting messages are delivered even if
// a ticket or a process was lost. It also reads the schedules of recurring messages, takes the
// files of the inbox, resumes the jobs whose process has ended, and begins the passes of upkeep.
package sweeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// wakeAhead spans two sweeps. A sweep wakes a lane if the lane's next work is due within this
	// time.
	wakeAhead = 2 * time.Minute
	// sweepLimit bounds the time of a sweep. It is far below the functionTimeout of 5 min in
	// host.json. After functionTimeout the host would restart this process, and so interrupt the
	// delivery in all lanes of this process.
	sweepLimit = time.Minute
)

// Reader reads a lane's control rows.
type Reader interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
}

// Waker makes this process work on a lane, or enqueues a ticket for the lane.
type Waker interface{ Wake(lane int) }

// PassBeginner begins passes of clean-up; see package upkeep. BeginPass begins a pass in the
// background, and returns at once.
type PassBeginner interface{ BeginPass() }

// Schedules runs recurring messages. Load reads all schedules from storage, so that a schedule runs
// even if the process that stored the schedule has died.
type Schedules interface {
	Load(ctx context.Context) error
}

// Inbox takes the files that other systems put into the inbox; see inbox.Collector.
type Inbox interface {
	Collect(ctx context.Context) error
}

// Sweeper sweeps the lanes. All exported fields are required, except those that can be nil.
type Sweeper struct {
	Log       Reader
	Waker     Waker
	Upkeep    PassBeginner
	Schedules Schedules
	Inbox     Inbox // nil = weir.yaml has no intake.files
	// Observe is called with the control rows of each lane that the sweep has read; nil = not
	// called.
	Observe func(ctx context.Context, lane int, c lane.Control)
	// Resume starts the jobs whose process has ended, and returns at once. The argument has the
	// control rows of lane 0, because the markers of jobs are there. nil = this process runs no
	// jobs.
	Resume func(ctx context.Context, first lane.Control)
	Lanes  int
	Now    func() time.Time

	once    sync.Once
	running chan struct{} // is full while a call of sweepLanes runs, so that a second call waits
}

// Sweep reads the schedules and looks at all lanes. Meanwhile it takes the files of the inbox. If
// one part fails, Sweep still does the other parts, and returns all errors. Sweep takes sweepLimit
// at most.
func (s *Sweeper) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()

	var files sync.WaitGroup
	var filesErr error
	if s.Inbox != nil {
		files.Go(func() { // the lanes must not wait for the files, which can need all of sweepLimit
			err := panics.Catch(func() error { return s.Inbox.Collect(ctx) })
			if err != nil {
				filesErr = fmt.Errorf("inbox: %w", err)
			}
		})
	}

	err := s.sweepLanes(ctx)
	files.Wait()

	return errors.Join(err, filesErr)
}

// sweepLanes reads the schedules, looks at all lanes, and begins a pass of upkeep. Calls at the
// same time run one after the other.
func (s *Sweeper) sweepLanes(ctx context.Context) error {
	s.once.Do(func() { s.running = make(chan struct{}, 1) })
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer s.Upkeep.BeginPass()

	errs := make([]error, s.Lanes+1)

	// before the lanes, so that slow lanes delay no recurring message
	if err := s.Schedules.Load(ctx); err != nil {
		errs[s.Lanes] = fmt.Errorf("schedules: %w", err)
	}

	_ = lane.ForEach(s.Lanes, func(number int) error {
		if err := s.sweepLane(ctx, number); err != nil {
			errs[number] = fmt.Errorf("lane %d: %w", number, err)
		}
		return nil
	})

	return errors.Join(errs...)
}

// sweepLane looks at a lane, and wakes the lane if it has work soon. With lane 0 it also resumes
// jobs.
func (s *Sweeper) sweepLane(ctx context.Context, number int) error {
	control, err := s.Log.ReadControl(ctx, number)
	if err != nil {
		return err
	}

	if s.Observe != nil {
		s.Observe(ctx, number, control)
	}

	if s.Resume != nil && number == 0 {
		s.Resume(ctx, control)
	}

	now := s.Now()
	at, hasWork := control.NextWorkAt(now)
	mayHaveCrashed := control.Tail.HolderFence() != 0
	if hasWork && at.Sub(now) < wakeAhead || mayHaveCrashed {
		s.Waker.Wake(number)
	}

	return nil
}
