package relane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage"
)

// Drainer drains lanes; the command takes part in running them empty.
type Drainer interface {
	Wake(lane int)
	Close(ctx context.Context) error
}

// Config is what a change works with. All fields are needed.
type Config struct {
	Store    *lane.Store // of no epoch yet
	Leases   storage.Leases
	Drainer  func(*lane.Store) Drainer // makes one for the lanes of an open store
	Lease    time.Duration             // 15 to 60 s, as the handlers have it
	Settle   time.Duration             // how long the CMS may still work on what it did not answer
	Progress func(string)              // is told what happens, in sentences
	Log      *slog.Logger
}

const (
	// leaseName keeps two commands apart.
	leaseName = "lanes"
	// look is the pause between two looks at lanes that run empty.
	look = time.Second
	// tell is the time after which a command that waits says so again.
	tell = 10 * time.Second
	// releaseTimeout bounds what goes on after the end.
	releaseTimeout = 10 * time.Second
)

// Errors that a caller may tell apart.
var (
	ErrNumber   = fmt.Errorf("the number of lanes must be 1 to %d", lane.MaxLanes)
	ErrUnderWay = errors.New("a change of the number of lanes is under way")
	ErrUndone   = errors.New("the change is being undone")
	ErrTooLate  = errors.New("the new number of lanes is in force already")
	ErrPaused   = errors.New("lanes or keys are paused, so that the lanes would not run empty; resume them first")
	ErrReplays  = errors.New("bulk replays are under way")
)

// Run changes the number of lanes to n, or goes on with a change to n that was begun. It
// comes back when n is in force. Where it fails or ctx ends, the change stays under way: run
// it again, or Undo it.
func (c Config) Run(ctx context.Context, n int) error {
	if n < 1 || n > lane.MaxLanes {
		return ErrNumber
	}
	return c.alone(ctx, func(ctx context.Context) error {
		meta, err := c.begin(ctx, n)
		for err == nil && meta.Step != lane.StepNone {
			c.Store.Adopt(meta)
			meta, err = c.step(ctx, meta)
		}
		return err
	})
}

// begin writes that a change is under way.
func (c Config) begin(ctx context.Context, n int) (meta lane.Meta, err error) {
	err = c.patiently(ctx, func() (err error) {
		meta, err = c.Store.First(ctx, n)
		return err
	})
	if err == nil && meta.Step == lane.StepNone && meta.Open.Lanes != n {
		err = c.refusePaused(ctx, meta.Open)
	}
	if err != nil {
		return lane.Meta{}, err
	}
	if err := c.noReplays(ctx, n); err != nil {
		return lane.Meta{}, err
	}
	begun := false
	meta, err = c.Store.ChangeMeta(ctx, func(m *lane.Meta) error {
		switch {
		case m.Step == lane.StepUndo:
			return fmt.Errorf("%w: finish that with --undo first", ErrUndone)
		case m.Step == lane.StepBooks && m.Open.Lanes == n, m.Step != lane.StepNone && m.Next.Lanes == n:
			begun = true
			return lane.ErrSame
		case m.Step != lane.StepNone:
			return fmt.Errorf("%w, to %d: finish it with that number, or undo it", ErrUnderWay, max(m.Next.Lanes, m.Open.Lanes))
		case m.Open.Lanes == n:
			return lane.ErrSame
		}
		m.Step, m.Next = lane.StepDrain, lane.Epoch{Epoch: m.Used + 1, Lanes: n}
		m.Used = m.Next.Epoch
		return nil
	})
	switch {
	case err != nil:
	case meta.Step == lane.StepNone:
		c.Progress(fmt.Sprintf("The number of lanes is %d.", n))
	case begun:
		c.Progress(fmt.Sprintf("Going on with the change to %d lanes.", n))
	default:
		c.Progress(fmt.Sprintf("Changing the number of lanes from %d to %d.", meta.Open.Lanes, n))
	}
	return meta, err
}

// step takes the change one step further.
func (c Config) step(ctx context.Context, meta lane.Meta) (lane.Meta, error) {
	switch meta.Step {
	case lane.StepDrain:
		if err := c.drain(ctx, meta); err != nil {
			return meta, err
		}
		return c.advance(ctx, meta, func(m *lane.Meta) { m.Step = lane.StepRefile })
	case lane.StepRefile:
		if err := c.refile(ctx, meta); err != nil {
			return meta, err
		}
		return c.advance(ctx, meta, func(m *lane.Meta) {
			m.Earlier = append(m.Earlier, m.Open)
			m.Open, m.Next, m.Step = m.Next, lane.Epoch{}, lane.StepBooks
		})
	case lane.StepBooks:
		if err := c.books(ctx, meta); err != nil {
			return meta, err
		}
		meta, err := c.advance(ctx, meta, func(m *lane.Meta) { m.Step = lane.StepNone })
		if err == nil {
			c.Progress(fmt.Sprintf("The number of lanes is %d now. Start the handlers with that setting.", meta.Open.Lanes))
		}
		return meta, err
	}
	return meta, fmt.Errorf("%w: finish that with --undo first", ErrUndone)
}

// advance writes the next step, if the step is still the one that was done.
func (c Config) advance(ctx context.Context, done lane.Meta, to func(*lane.Meta)) (lane.Meta, error) {
	want := done
	to(&want)
	return c.Store.ChangeMeta(ctx, func(m *lane.Meta) error {
		switch {
		case m.Step == want.Step && m.Open == want.Open:
			return lane.ErrSame
		case m.Step != done.Step || m.Open != done.Open:
			return ErrUndone
		}
		to(m)
		return nil
	})
}

// Undo gives the old number of lanes back. It can be repeated, too.
func (c Config) Undo(ctx context.Context) error {
	meta, err := c.Store.ChangeMeta(ctx, func(m *lane.Meta) error {
		switch m.Step {
		case lane.StepBooks:
			return fmt.Errorf("%w: finish the change with `handler lanes %d`, and change back then", ErrTooLate, m.Open.Lanes)
		case lane.StepUndo:
			return lane.ErrSame
		case lane.StepDrain, lane.StepRefile:
			m.Step = lane.StepUndo
		}
		return nil // the row is written also where nothing is to be undone: a beginning may be on its way
	})
	if storage.Is(err, storage.NotFound) {
		c.Progress("There is no change to undo.")
		return nil
	}
	if err != nil {
		return err
	}
	if meta.Step == lane.StepNone {
		c.Progress("There is no change to undo.")
		return nil
	}
	c.Progress(fmt.Sprintf("Undoing the change from %d to %d lanes.", meta.Open.Lanes, meta.Next.Lanes))
	return c.alone(ctx, c.undo)
}

// undo does it, unless another command has meanwhile.
func (c Config) undo(ctx context.Context) error {
	var meta lane.Meta
	err := c.patiently(ctx, func() (err error) {
		meta, err = c.Store.Meta(ctx)
		return err
	})
	if err != nil || meta.Step != lane.StepUndo {
		return err
	}
	c.Store.Adopt(meta)
	if err := c.eachLane(ctx, meta.Open.Lanes, c.reopen); err != nil {
		return err
	}
	if err := c.eachLane(ctx, meta.Open.Lanes, c.Store.Unseal); err != nil {
		return err
	}
	if err := c.eachLane(ctx, meta.Next.Lanes, c.Store.In(meta.Next).Drop); err != nil {
		return err
	}
	_, err = c.Store.ChangeMeta(ctx, func(m *lane.Meta) error {
		if m.Step != lane.StepUndo {
			return lane.ErrSame
		}
		m.Step, m.Next = lane.StepNone, lane.Epoch{}
		return nil
	})
	if err == nil {
		c.Progress(fmt.Sprintf("Undone: the number of lanes is %d.", meta.Open.Lanes))
	}
	return err
}

// reopen makes sure that a lane can be held and that no closing of it is on its way: by
// taking the fence, or by seeing that somebody else wrote tail since.
func (c Config) reopen(ctx context.Context, number int) error {
	first, err := c.Store.Control(ctx, number)
	if err != nil {
		return err
	}
	for {
		l, err := c.acquire(ctx, c.Store.LeaseName(number))
		if err == nil {
			err = c.Store.Reopen(l.Context(), number, rand.Text())
			c.release(ctx, l)
			return err
		}
		if !errors.Is(err, lease.ErrBusy) {
			return err
		}
		now, err := c.Store.Control(ctx, number)
		if err != nil {
			return err
		}
		if now.Tail.ETag != first.Tail.ETag && !now.Tail.Closed {
			return nil
		}
		if !clock.Sleep(ctx, look) {
			return context.Cause(ctx)
		}
	}
}

// Meta tells how many lanes there are, and of a change under way.
func (c Config) Meta(ctx context.Context) (lane.Meta, error) { return c.Store.Meta(ctx) }

// alone does something under the lease that keeps two commands apart.
func (c Config) alone(ctx context.Context, do func(context.Context) error) error {
	for said := false; ; said = true {
		l, err := c.acquire(ctx, leaseName)
		if err == nil {
			defer c.release(ctx, l)
			err = do(l.Context())
			if cause := context.Cause(l.Context()); err != nil && cause != nil {
				err = cause
			}
			return err
		}
		if !errors.Is(err, lease.ErrBusy) && !transient(err) {
			return err
		}
		if !said {
			c.Progress("Another command is at work, or was killed a moment ago: waiting for it.")
		}
		if !clock.Sleep(ctx, look) {
			return context.Cause(ctx)
		}
	}
}

func (c Config) acquire(ctx context.Context, name string) (*lease.Lease, error) {
	return lease.Acquire(ctx, lease.Config{Leases: c.Leases, Length: c.Lease, Now: c.Store.Now, Log: c.Log}, name)
}

func (c Config) release(ctx context.Context, l *lease.Lease) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := l.Release(limited); err != nil {
		c.Log.Warn("relane: lease not released", "err", err)
	}
}

// patiently does something until storage lets it.
func (c Config) patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !transient(err) {
			return err
		}
		c.Log.Warn("relane: storage", "err", err)
		if !clock.Sleep(ctx, look) {
			return context.Cause(ctx)
		}
	}
}

// eachLane does something for a number of lanes, patiently.
func (c Config) eachLane(ctx context.Context, n int, do func(context.Context, int) error) error {
	return lane.Each(n, func(number int) error {
		err := c.patiently(ctx, func() error { return do(ctx, number) })
		if err != nil {
			return fmt.Errorf("lane %d: %w", number, err)
		}
		return nil
	})
}

// transient errors are those after which the same may go well.
func transient(err error) bool {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous, storage.Precondition:
		return true
	}
	return errors.Is(err, lane.ErrFenced)
}
