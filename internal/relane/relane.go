package relane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/epochend"
	"weir/internal/lane/epochs"
	"weir/internal/lease"
	"weir/internal/retry"
	"weir/internal/storage"
)

// Drainer delivers the messages of lanes. The command `weir lanes` uses a Drainer to help the
// holders empty the lanes.
type Drainer interface {
	Wake(lane int)
	Close(ctx context.Context) error
}

// Resharder changes the number of lanes and the folding of keys. All exported fields are required.
type Resharder struct {
	Store   *lane.Store // the caller must not have called Store.Open
	Leases  storage.Leases
	Drainer func(*lane.Store) Drainer // makes a Drainer for the lanes of a store
	// length of a lease: 15 to 60 s, as in the handlers' settings
	Lease time.Duration
	// the longest time for which the CMS works on a request without an answer
	Settle   time.Duration
	Progress func(string) // gets each report for the user
	Log      *slog.Logger

	onlyUnused bool // see TakeNumber
}

const (
	// commandLeaseName names the lease that a running command `weir lanes` has, so that only one
	// such command runs at a time.
	commandLeaseName = "lanes"
	// pollInterval is the time between two checks of lanes that are being emptied or reopened. It
	// is also the first pause after a failed call to storage.
	pollInterval = time.Second
	// progressInterval is the time between two progress reports while the command waits.
	progressInterval = 10 * time.Second
	// releaseTimeout limits the time to close the drainer.
	releaseTimeout = 10 * time.Second
)

// Errors of Run and Undo.
var (
	ErrNumber   = fmt.Errorf("the number of lanes must be 1 to %d", epochs.MaxLanes)
	ErrUnderWay = errors.New("a change of the number of lanes is under way")
	ErrUndone   = errors.New("the change is being undone")
	ErrTooLate  = errors.New("the new number of lanes is in force already")
	ErrPaused   = errors.New("lanes or keys are paused, so that the lanes would not run empty; resume them first")
	ErrReplays  = errors.New("bulk replays are under way")

	ErrContractMissing = errors.New(
		"messages wait for contracts that the settings lack, so that the lanes would not " +
			"run empty; put the contracts back, or cancel the messages")
)

// Target describes the lanes to which a change leads.
type Target struct {
	Lanes int         // 0 = the number stays
	Fold  *fold.Rules // nil = the folding stays
}

// resolve returns the epoch that the change leads to, without its number. If a change is under way
// that can be the meant one, the parts that the target leaves open are those of that change;
// otherwise they are those of the open epoch.
func (t Target) resolve(meta epochs.Record) epochs.Epoch {
	goal := meta.Open
	if meta.Step == epochs.StepDrain || meta.Step == epochs.StepCopy {
		goal = meta.Next
	}

	goal.Number = 0
	if t.Lanes > 0 {
		goal.Lanes = t.Lanes
	}

	if t.Fold != nil {
		goal.Fold = *t.Fold
	}

	return goal
}

// Run changes the lanes to those of the target, or continues an unfinished change to them. It
// returns nil when the change is finished. If Run fails, the change can be unfinished: call Run
// with the same target again, or call Undo.
func (c Resharder) Run(ctx context.Context, t Target) error {
	if t.Lanes < 0 || t.Lanes > epochs.MaxLanes || t == (Target{}) {
		return ErrNumber
	}

	return c.withCommandLease(ctx, func(ctx context.Context) error {
		meta, err := c.beginChange(ctx, t)
		for err == nil && meta.Step != epochs.StepNone {
			c.Store.UseEpochRecord(meta)
			meta, err = c.runStep(ctx, meta)
		}
		return err
	})
}

// beginChange records that a change begins, unless that change has already begun or the lanes are
// those of the target.
func (c Resharder) beginChange(ctx context.Context, t Target) (meta epochs.Record, err error) {
	err = c.retryTransient(ctx, func() (err error) {
		first := t.resolve(epochs.Record{Open: epochs.Epoch{Lanes: 1}})
		meta, err = c.Store.Initialize(ctx, first)
		return err
	})

	goal := t.resolve(meta)
	if err == nil && c.onlyUnused {
		err = c.checkUnused(ctx, goal)
	}

	if err == nil && meta.Step == epochs.StepNone && !meta.Open.HasSameLanes(goal) {
		if err = c.checkNotPaused(ctx, meta.Open); err == nil {
			err = c.checkNoContractMissing(ctx, meta.Open)
		}
	}

	if err != nil {
		return epochs.Record{}, err
	}

	if err := c.checkNoReplays(ctx, goal); err != nil {
		return epochs.Record{}, err
	}

	begun := false
	meta, err = epochs.Update(ctx, c.Store.Table, func(m *epochs.Record) error {
		switch {
		case m.Step == epochs.StepUndo:
			return fmt.Errorf("%w: finish that with --undo first", ErrUndone)
		case m.Step == epochs.StepCount && m.Open.HasSameLanes(goal),
			m.Step != epochs.StepNone && m.Next.HasSameLanes(goal):
			begun = true
			if m.IsUnused && !c.onlyUnused {
				m.IsUnused = false // the command goes on although messages may have come
				return nil
			}
			return epochs.ErrNoChange

		case m.Step != epochs.StepNone:
			return fmt.Errorf("%w, to %s: finish it with that, or undo it", ErrUnderWay,
				changeGoal(*m))
		case m.Open.HasSameLanes(goal):
			return epochs.ErrNoChange
		}

		m.Step, m.Next = epochs.StepDrain,
			epochs.Epoch{Number: m.Used + 1, Lanes: goal.Lanes, Fold: goal.Fold}
		m.Used, m.IsUnused = m.Next.Number, c.onlyUnused
		return nil
	})

	switch {
	case err != nil:
	case meta.Step == epochs.StepNone:
		c.Progress(fmt.Sprintf("The number of lanes is %s.", meta.Open))
	case begun:
		c.Progress(fmt.Sprintf("Going on with the change to %s.", goal.Describe()))
	case meta.Open.Lanes == goal.Lanes:
		c.Progress(fmt.Sprintf("Changing the folding of keys from %s to %s.", meta.Open.Fold,
			goal.Fold))
	default:
		c.Progress(fmt.Sprintf("Changing the number of lanes from %s to %s.", meta.Open, goal))
	}

	return meta, err
}

// changeGoal returns the epoch that a change under way leads to.
func changeGoal(m epochs.Record) epochs.Epoch {
	if m.Step == epochs.StepCount {
		return m.Open
	}
	return m.Next
}

// runStep does the change's present step, and then records the next step.
func (c Resharder) runStep(ctx context.Context, meta epochs.Record) (epochs.Record, error) {
	switch meta.Step {
	case epochs.StepDrain:
		if err := c.drainLanes(ctx, meta); err != nil {
			return meta, err
		}
		return c.advanceStep(ctx, meta, func(m *epochs.Record) { m.Step = epochs.StepCopy })

	case epochs.StepCopy:
		if err := c.copyMessages(ctx, meta); err != nil {
			return meta, err
		}

		last := epochs.StepCount
		if meta.IsUnused { // nothing was copied, so a start need not come back to record that
			if err := c.recordMoved(ctx, meta.Open); err != nil {
				return meta, err
			}
			last = epochs.StepNone
		}

		return c.advanceStep(ctx, meta, func(m *epochs.Record) {
			m.Earlier = append(m.Earlier, m.Open)
			m.Open, m.Next, m.Step = m.Next, epochs.Epoch{}, last
		})

	case epochs.StepCount:
		if err := c.recordMoved(ctx, meta.Earlier[len(meta.Earlier)-1]); err != nil {
			return meta, err
		}

		meta, err := c.advanceStep(ctx, meta, func(m *epochs.Record) { m.Step = epochs.StepNone })
		if err == nil {
			c.Progress(describeEnd(meta.Open))
		}

		return meta, err
	}

	return meta, fmt.Errorf("%w: finish that with --undo first", ErrUndone)
}

// describeEnd returns the last report of a change: the new lanes, and the line of weir.yaml that
// starts them.
func describeEnd(open epochs.Epoch) string {
	setting := fmt.Sprintf("lanes: %d", open.Lanes)
	if open.Fold != 0 {
		setting += fmt.Sprintf(" and fold: [%s]", open.Fold.Flag())
	}
	return fmt.Sprintf("The number of lanes is %s now. Put %s into weir.yaml if it is not there yet, and start Weir "+
		"again: until then posts are answered 503.", open, setting)
}

// advanceStep calls the parameter "to", which sets the next step, and stores the record. If another
// command has begun to undo the change, advanceStep stores nothing and returns ErrUndone.
func (c Resharder) advanceStep(ctx context.Context, done epochs.Record,
	to func(*epochs.Record)) (epochs.Record, error) {
	want := done
	to(&want)
	return epochs.Update(ctx, c.Store.Table, func(m *epochs.Record) error {
		switch {
		case m.Step == want.Step && m.Open == want.Open:
			return epochs.ErrNoChange
		case m.Step != done.Step || m.Open != done.Open:
			return ErrUndone
		}

		to(m)
		return nil
	})
}

// Undo undoes an unfinished change, so that the old number of lanes stays in force. If Undo fails,
// call Undo again. It returns ErrTooLate if the unfinished change has already put the new number
// into force.
func (c Resharder) Undo(ctx context.Context) error {
	meta, err := epochs.Update(ctx, c.Store.Table, func(m *epochs.Record) error {
		if err := lane.CheckNotMoved(*m); err != nil {
			return err
		}

		switch m.Step {
		case epochs.StepCount:
			return fmt.Errorf("%w: finish the change with `weir lanes %d`, and change back then",
				ErrTooLate, m.Open.Lanes)
		case epochs.StepUndo:
			return epochs.ErrNoChange
		case epochs.StepDrain, epochs.StepCopy:
			m.Step = epochs.StepUndo
		}

		// The row is written even if no change is under way: its new ETag makes a late write of
		// beginChange fail.
		return nil
	})
	if storage.Is(err, storage.NotFound) {
		c.Progress("There is no change to undo.")
		return nil
	}

	if err != nil {
		return err
	}

	if meta.Step == epochs.StepNone {
		c.Progress("There is no change to undo.")
		return nil
	}

	c.Progress(fmt.Sprintf("Undoing the change from %s to %s.", meta.Open, meta.Next.Describe()))

	return c.withCommandLease(ctx, c.undoChange)
}

// undoChange reopens the old lanes and removes the new ones, unless another command has already
// done so.
func (c Resharder) undoChange(ctx context.Context) error {
	var meta epochs.Record
	err := c.retryTransient(ctx, func() (err error) {
		meta, err = epochs.Read(ctx, c.Store.Table)
		return err
	})
	if err != nil || meta.Step != epochs.StepUndo {
		return err
	}

	c.Store.UseEpochRecord(meta)
	if err := c.eachLane(ctx, meta.Open.Lanes, c.reopenLane); err != nil {
		return err
	}

	if err := c.eachLane(ctx, meta.Open.Lanes, epochend.Lanes{Store: c.Store}.Unseal); err != nil {
		return err
	}

	if err := c.eachLane(ctx, meta.Next.Lanes, c.Store.ForEpoch(meta.Next).DeleteLane); err != nil {
		return err
	}

	_, err = epochs.Update(ctx, c.Store.Table, func(m *epochs.Record) error {
		if m.Step != epochs.StepUndo {
			return epochs.ErrNoChange
		}
		m.Step, m.Next = epochs.StepNone, epochs.Epoch{}
		return nil
	})
	if err == nil {
		c.Progress(fmt.Sprintf("Undone: the number of lanes is %s.", meta.Open))
	}

	return err
}

// reopenLane makes sure that a process can hold a lane, and that no late write closes the lane
// again. It writes tail under the lane's lease. While another process has the lease, reopenLane
// tries again. If that process has written tail with IsClosed = false, reopenLane returns nil.
func (c Resharder) reopenLane(ctx context.Context, number int) error {
	first, err := c.Store.ReadControl(ctx, number)
	if err != nil {
		return err
	}

	for {
		err := lease.Do(ctx, c.leaseConfig(), c.Store.LeaseName(number),
			func(ctx context.Context) error {
				return epochend.Lanes{Store: c.Store}.Reopen(ctx, number, rand.Text())
			})
		if !errors.Is(err, lease.ErrBusy) {
			return err
		}

		now, err := c.Store.ReadControl(ctx, number)
		if err != nil {
			return err
		}
		if now.Tail.ETag != first.Tail.ETag && !now.Tail.IsClosed {
			return nil
		}
		if !clock.Sleep(ctx, pollInterval) {
			return context.Cause(ctx)
		}
	}
}

// withCommandLease calls do while this command has the lease commandLeaseName.
func (c Resharder) withCommandLease(ctx context.Context, do func(context.Context) error) error {
	var l *lease.Lease
	hasReported := false
	err := retry.Policy{
		First: pollInterval,
		IsTransient: func(err error) bool {
			return errors.Is(err, lease.ErrBusy) ||
				isTransient(err)
		},
		BeforePause: func(_ error, pause time.Duration) (time.Duration, bool) {
			if !hasReported {
				c.Progress("Another command is at work, or was killed a moment ago: waiting for it.")
			}
			hasReported = true
			return pause, true
		},
	}.Do(ctx, func() (err error) {
		l, err = lease.Acquire(ctx, c.leaseConfig(), commandLeaseName)
		return err
	})
	if err != nil {
		return err
	}
	defer l.Release(ctx)
	err = do(l.Context())
	if cause := context.Cause(l.Context()); err != nil && cause != nil {
		err = cause
	}

	return err
}

func (c Resharder) leaseConfig() lease.Config {
	return lease.Config{Leases: c.Leases, Length: c.Lease, Now: c.Store.Now, Log: c.Log}
}

// retryTransient calls do until do succeeds, or returns an error that is not transient.
func (c Resharder) retryTransient(ctx context.Context, do func() error) error {
	return retry.Policy{
		First: pollInterval, IsTransient: isTransient,
		BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
			c.Log.Warn("relane: storage failed, will retry", "err", err)
			return pause, true
		},
	}.Do(ctx, do)
}

// eachLane calls do for the lanes 0 to n-1, with retryTransient for each lane.
func (c Resharder) eachLane(ctx context.Context, n int, do func(context.Context, int) error) error {
	return lane.ForEach(n, func(number int) error {
		err := c.retryTransient(ctx, func() error { return do(ctx, number) })
		if err != nil {
			return fmt.Errorf("lane %d: %w", number, err)
		}
		return nil
	})
}

// isTransient reports whether a failed call can succeed if it is repeated.
func isTransient(err error) bool {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous, storage.Precondition:
		return true
	}
	return errors.Is(err, lane.ErrFenced)
}
