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
	"weir/internal/lane/epochend"
	"weir/internal/lane/epochs"
	"weir/internal/lease"
)

// maxPausesNamed is the number of pauses that an error names.
const maxPausesNamed = 10

// checkNoContractMissing returns ErrContractMissing, with the names in its text, if messages wait
// for contracts that the settings lack. A change of the number of lanes could not end before these
// messages are final.
func (c Resharder) checkNoContractMissing(ctx context.Context, open epochs.Epoch) error {
	missing := map[string]int64{}
	for number := range open.Lanes {
		err := c.retryTransient(ctx, func() error {
			control, err := c.Store.ForEpoch(open).ReadControl(ctx, number)
			for _, m := range control.MissingContracts() {
				missing[m.Contract] += m.Messages
			}
			return err
		})
		if err != nil {
			return err
		}
	}

	if len(missing) == 0 {
		return nil
	}

	text := ErrContractMissing
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		text = fmt.Errorf("%w; contract %q (messages: %d)", text, name, missing[name])
	}

	return text
}

// checkNotPaused returns ErrPaused, with the pauses in its text, if lanes or keys are paused. A
// change of the number of lanes could not end before all pauses have ended.
func (c Resharder) checkNotPaused(ctx context.Context, open epochs.Epoch) error {
	return c.retryTransient(ctx, func() error {
		pauses, err := c.Store.ForEpoch(open).Pauses().ReadPauses(ctx)
		if err != nil || len(pauses) == 0 {
			return err
		}

		text := ErrPaused
		for i, p := range pauses {
			switch {
			case i == maxPausesNamed:
				return fmt.Errorf("%w; and %d more", text, len(pauses)-maxPausesNamed)
			case p.Key == "":
				text = fmt.Errorf("%w; lane %d (%s)", text, p.Lane, p.Reason)
			default:
				text = fmt.Errorf("%w; key %q (%s)", text, p.Key, p.Reason)
			}
		}

		return text
	})
}

// drainLanes seals the heads, so that no message is appended any more. Then it waits until the
// lanes are empty. It closes each empty lane, so that no process can hold the lane any more.
func (c Resharder) drainLanes(ctx context.Context, meta epochs.Record) error {
	if err := c.eachLane(ctx, meta.Open.Lanes, epochend.Lanes{Store: c.Store}.Seal); err != nil {
		return err
	}

	if c.onlyUnused {
		if err := c.undoIfUsed(ctx, meta); err != nil {
			return err
		}
	}

	if err := c.recheckNoReplays(ctx); err != nil {
		return err
	}

	c.Progress("Intake answers 503 now; waiting for the lanes to run empty.")
	drainer := c.Drainer(c.Store.ForEpoch(meta.Open))
	defer c.closeDrainer(ctx, drainer)
	open := make(map[int]bool, meta.Open.Lanes)
	for number := range meta.Open.Lanes {
		open[number] = true
		drainer.Wake(number)
	}

	for reportedAt := c.Store.Now(); ; {
		rests, err := c.closeEmpty(ctx, open)
		if err != nil || len(open) == 0 {
			return err
		}

		if now := c.Store.Now(); now.Sub(reportedAt) >= progressInterval {
			reportedAt = now

			// A woken drainer holds the lane for a while, and closeLane needs the lane's lease. So
			// the lanes are not woken at each poll.
			for number := range open {
				drainer.Wake(number)
			}

			c.Progress(describeRemaining(rests, now))
		}

		if !clock.Sleep(ctx, pollInterval) {
			return context.Cause(ctx)
		}

		if err := c.checkNotUndone(ctx, meta); err != nil {
			return err
		}
	}
}

func (c Resharder) closeDrainer(ctx context.Context, d Drainer) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := d.Close(limited); err != nil {
		c.Log.Warn("relane: drainer not closed", "err", err)
	}
}

// closeEmpty closes each empty lane in the map "open", and removes the lane from the map. It
// returns each lane's remaining work.
func (c Resharder) closeEmpty(ctx context.Context,
	open map[int]bool) (map[int]epochend.Remaining, error) {
	lanes, numbers := epochend.Lanes{Store: c.Store}, slices.Sorted(maps.Keys(open))
	found, closed := make([]epochend.Remaining, len(numbers)), make([]bool, len(numbers))
	err := lane.ForEach(len(numbers), func(i int) (err error) {
		return c.retryTransient(ctx, func() (err error) {
			if found[i], err = lanes.ReadRemaining(ctx, numbers[i]); err == nil &&
				found[i].IsEmpty() {
				closed[i], err = c.closeLane(ctx, numbers[i])
			}
			return err
		})
	})

	rests := map[int]epochend.Remaining{}
	for i, number := range numbers {
		if rests[number] = found[i]; closed[i] {
			delete(open, number)
		}
	}

	return rests, err
}

// closeLane takes a lane's lease and closes the lane. It returns false if another process has the
// lease, or if the lane has work left.
func (c Resharder) closeLane(ctx context.Context, number int) (isClosed bool, err error) {
	err = lease.Do(ctx, c.leaseConfig(), c.Store.LeaseName(number),
		func(ctx context.Context) (err error) {
			isClosed, err = epochend.Lanes{Store: c.Store}.Close(ctx, number, rand.Text(), c.Settle)
			return err
		})
	if errors.Is(err, lease.ErrBusy) {
		return false, nil
	}

	return isClosed, err
}

// checkNotUndone returns ErrUndone if another command has begun to undo the change.
func (c Resharder) checkNotUndone(ctx context.Context, meta epochs.Record) error {
	return c.retryTransient(ctx, func() error {
		now, err := epochs.Read(ctx, c.Store.Table)
		if err == nil && (now.Step != meta.Step || now.Next != meta.Next) {
			return ErrUndone
		}
		return err
	})
}

// describeRemaining returns a sentence about the messages for which the change waits.
func describeRemaining(rests map[int]epochend.Remaining, now time.Time) string {
	waiting, lanes, reason := int64(0), 0, ""
	var until time.Time
	for _, r := range rests {
		if r.IsEmpty() {
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

	text := "Waiting for " + countOf(int64(lanes), "lane") + " with " + countOf(waiting, "message")
	if until.After(now.AddDate(1, 0, 0)) {
		text += "; nothing is sent"
	} else if until.After(now) {
		text += fmt.Sprintf("; nothing is sent for another %s", until.Sub(now).Round(time.Second))
	}

	if reason != "" {
		text += fmt.Sprintf(", because %s. `weir lanes --undo` undoes the change", reason)
	}

	return text + "."
}

// countOf returns a number with its noun: 1 lane, 2 lanes.
func countOf(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// copyMessages copies the scheduled messages, the dead messages, the latest delivered versions and
// the remembered ids into the next epoch's lanes.
func (c Resharder) copyMessages(ctx context.Context, meta epochs.Record) error {
	c.Progress("All lanes are empty and closed; moving the scheduled and dead messages.")
	r := &epochend.Copy{From: c.Store, To: c.Store.ForEpoch(meta.Next)}
	if err := c.retryTransient(ctx, func() error { return r.Prepare(ctx) }); err != nil {
		return err
	}

	// The lanes are copied one after the other, because messages of two lanes can go into the same
	// lane of the next epoch, and would then change the same head.
	for number := range meta.Open.Lanes {
		if err := c.checkNotUndone(ctx, meta); err != nil {
			return err
		}

		if err := c.retryTransient(ctx, func() error { return r.CopyLane(ctx, number) }); err !=
			nil {
			return fmt.Errorf("lane %d: %w", number, err)
		}
	}

	return nil
}

// recordMoved writes into the tail of each lane of a closed epoch how many of the lane's messages
// were copied into the next epoch.
func (c Resharder) recordMoved(ctx context.Context, last epochs.Epoch) error {
	return c.eachLane(ctx, last.Lanes, epochend.Lanes{Store: c.Store.ForEpoch(last)}.RecordMoved)
}
