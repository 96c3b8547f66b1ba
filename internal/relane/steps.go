package relane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lease"
)

// pausedShown is how many pauses are named.
const pausedShown = 10

// refusePaused says what has to be resumed before a change can begin: what is paused waits,
// and a lane that does not run empty is never closed.
func (c Config) refusePaused(ctx context.Context, open lane.Epoch) error {
	return c.patiently(ctx, func() error {
		pauses, err := c.Store.In(open).Pauses(ctx)
		if err != nil || len(pauses) == 0 {
			return err
		}
		text := ErrPaused
		for i, p := range pauses {
			switch {
			case i == pausedShown:
				return fmt.Errorf("%w; and %d more", text, len(pauses)-pausedShown)
			case p.Key == "":
				text = fmt.Errorf("%w; lane %d (%s)", text, p.Lane, p.Reason)
			default:
				text = fmt.Errorf("%w; key %q (%s)", text, p.Key, p.Reason)
			}
		}
		return text
	})
}

// drain seals the heads and closes every lane as soon as it has run empty.
func (c Config) drain(ctx context.Context, meta lane.Meta) error {
	if err := c.eachLane(ctx, meta.Open.Lanes, c.Store.Seal); err != nil {
		return err
	}
	if err := c.noneSlipped(ctx); err != nil {
		return err
	}
	c.Progress("Intake answers 503 now; waiting for the lanes to run empty.")
	drainer := c.Drainer(c.Store.In(meta.Open))
	defer c.closeDrainer(ctx, drainer)
	open := make(map[int]bool, meta.Open.Lanes)
	for number := range meta.Open.Lanes {
		open[number] = true
		drainer.Wake(number)
	}
	for told := c.Store.Now(); ; {
		rests, err := c.closeEmpty(ctx, open)
		if err != nil || len(open) == 0 {
			return err
		}
		if now := c.Store.Now(); now.Sub(told) >= tell {
			told = now
			for number := range open { // not too often: a wake makes a holder linger
				drainer.Wake(number)
			}
			c.Progress(describe(rests, now))
		}
		if !clock.Sleep(ctx, look) {
			return context.Cause(ctx)
		}
		if err := c.stillWanted(ctx, meta); err != nil {
			return err
		}
	}
}

func (c Config) closeDrainer(ctx context.Context, d Drainer) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := d.Close(limited); err != nil {
		c.Log.Warn("relane: drains not ended", "err", err)
	}
}

// closeEmpty closes what has run empty, takes it out of open, and tells what keeps the rest.
func (c Config) closeEmpty(ctx context.Context, open map[int]bool) (map[int]lane.Rest, error) {
	numbers := slices.Sorted(maps.Keys(open))
	found, closed := make([]lane.Rest, len(numbers)), make([]bool, len(numbers))
	err := lane.Each(len(numbers), func(i int) (err error) {
		return c.patiently(ctx, func() (err error) {
			if found[i], err = c.Store.Rest(ctx, numbers[i]); err == nil && found[i].Empty() {
				closed[i], err = c.close(ctx, numbers[i])
			}
			return err
		})
	})
	rests := map[int]lane.Rest{}
	for i, number := range numbers {
		if rests[number] = found[i]; closed[i] {
			delete(open, number)
		}
	}
	return rests, err
}

// close closes one lane under its lease. A lane that another holds is let be for now.
func (c Config) close(ctx context.Context, number int) (bool, error) {
	l, err := c.acquire(ctx, c.Store.LeaseName(number))
	if errors.Is(err, lease.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer c.release(ctx, l)
	return c.Store.Close(l.Context(), number, rand.Text(), c.Settle)
}

// stillWanted says whether the change has been undone meanwhile.
func (c Config) stillWanted(ctx context.Context, meta lane.Meta) error {
	return c.patiently(ctx, func() error {
		now, err := c.Store.Meta(ctx)
		if err == nil && (now.Step != meta.Step || now.Next != meta.Next) {
			return ErrUndone
		}
		return err
	})
}

// describe tells what the lanes wait for.
func describe(rests map[int]lane.Rest, now time.Time) string {
	waiting, lanes, reason := int64(0), 0, ""
	var until time.Time
	for _, r := range rests {
		if r.Empty() {
			continue
		}
		lanes++
		waiting += r.Waiting
		if r.Until.After(until) {
			until = r.Until
		}
		if r.Reason != "" {
			reason = r.Reason
		}
	}
	text := fmt.Sprintf("Waiting for %d lanes with %d messages", lanes, waiting)
	if until.After(now.AddDate(1, 0, 0)) {
		text += "; nothing is sent"
	} else if until.After(now) {
		text += fmt.Sprintf("; nothing is sent for another %s", until.Sub(now).Round(time.Second))
	}
	if reason != "" {
		text += fmt.Sprintf(", because %s. `handler lanes --undo` gives the change up", reason)
	}
	return text + "."
}

// refile copies what is kept for later into the next epoch's lanes.
func (c Config) refile(ctx context.Context, meta lane.Meta) error {
	c.Progress("All lanes are empty and closed; moving what is scheduled and dead.")
	r := &lane.Refile{From: c.Store, To: c.Store.In(meta.Next)}
	if err := c.patiently(ctx, func() error { return r.Prepare(ctx) }); err != nil {
		return err
	}
	// One after the other: the lanes' order decides nothing, but two at a time would write
	// the same heads.
	for number := range meta.Open.Lanes {
		if err := c.stillWanted(ctx, meta); err != nil {
			return err
		}
		if err := c.patiently(ctx, func() error { return r.Lane(ctx, number) }); err != nil {
			return fmt.Errorf("lane %d: %w", number, err)
		}
	}
	return nil
}

// books writes into the closed lanes what moved out of them.
func (c Config) books(ctx context.Context, meta lane.Meta) error {
	last := meta.Earlier[len(meta.Earlier)-1]
	return c.eachLane(ctx, last.Lanes, c.Store.In(last).Book)
}
