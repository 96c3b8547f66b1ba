package epochend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Lanes changes the lanes of the epoch that ends. Its methods can be called concurrently for
// different lanes.
type Lanes struct{ Store *lane.Store }

// Seal seals a lane's head. Every append is conditional on head's ETag, so no append succeeds after
// Seal has returned.
func (l Lanes) Seal(ctx context.Context, number int) error {
	return l.updateControl(ctx, number, func(c lane.Control) (bool, storage.Op) {
		return c.Head.IsSealed, c.Head.UpdateOp(rows.IsSealed.Is(true))
	})
}

// Unseal removes the seal from a lane's head, and makes the next holder look for messages that
// became due meanwhile. It writes head even if head has no seal, so that a late write of Seal
// fails.
func (l Lanes) Unseal(ctx context.Context, number int) error {
	var first storage.ETag
	return l.updateControl(ctx, number, func(c lane.Control) (bool, storage.Op) {
		if first == "" {
			first = c.Head.ETag
		}
		return !c.Head.IsSealed && c.Head.ETag != first, c.Head.UpdateOp(
			rows.IsSealed.Is(false), rows.RequestSeq.Is(c.Head.RequestSeq+1))
	})
}

// RecordMoved corrects the counters in a closed lane's tail. The lane's dead and scheduled messages
// then count as moved, and none of them as dead. The next epoch counts these messages.
func (l Lanes) RecordMoved(ctx context.Context, number int) error {
	dead, err := l.readKeys(ctx, number, rows.DeadPrefix)
	if err != nil {
		return err
	}

	scheduled, err := l.readKeys(ctx, number, rows.DuePrefix)
	if err != nil {
		return err
	}

	return l.updateControl(ctx, number, func(c lane.Control) (bool, storage.Op) {
		return c.Tail.MovedRecorded, c.Tail.UpdateOp(
			rows.MovedRecorded.Is(true), rows.Dead.Is(c.Tail.Counts.Dead-int64(len(dead))),
			rows.Moved.Is(int64(len(dead)+len(scheduled))))
	})
}

// updateControl makes a conditional write of a control row. While the result is uncertain,
// updateControl repeats the write, until ctx ends.
func (l Lanes) updateControl(ctx context.Context, number int,
	op func(lane.Control) (done bool, op storage.Op)) error {
	return rows.Update(ctx, func() (bool, error) {
		c, err := l.Store.ReadControl(ctx, number)
		if err != nil {
			return !rows.IsUncertain(err), err
		}

		done, write := op(c)
		if done {
			return true, nil
		}

		_, err = l.Store.Table.Transact(ctx, l.Store.Partition(number), []storage.Op{write})

		return !rows.IsUncertain(err), err
	}, pauseUnlessLost)
}

// pauseUnlessLost returns the pause before a conditional write is repeated. The pause is 0 if
// another process has changed the row.
func pauseUnlessLost(err error) time.Duration {
	if storage.Is(err, storage.Precondition) {
		return 0
	}
	return rows.ResendPause
}

// Remaining is the work that keeps a sealed lane from being closed.
type Remaining struct {
	Waiting int64 // messages in the log; if the log has none, held messages
	// earliest time to close the lane; sooner if an operator ends a pause; zero = not known
	Until  time.Time
	Reason string // reason of the pause; empty = no pause
}

// IsEmpty reports whether the lane can be closed.
func (r Remaining) IsEmpty() bool { return r == Remaining{} }

// ReadRemaining returns the work that is left in a lane: messages in the log, held messages, open
// requests, and writes that the CMS may still be working on. Scheduled messages do not count. A
// pause by an operator counts, because the next epoch would lack the pause.
func (l Lanes) ReadRemaining(ctx context.Context, number int) (Remaining, error) {
	c, err := l.Store.ReadControl(ctx, number)
	if err != nil {
		return Remaining{}, err
	}
	return l.remainingOf(ctx, number, c)
}

func (l Lanes) remainingOf(ctx context.Context, number int, c lane.Control) (Remaining, error) {
	waiting := c.Head.Next - c.Tail.Cursor
	if c.HasRequests() {
		waiting = max(waiting, 1)
	}

	if waiting == 0 {
		blocks, err := l.Store.DeliveryState().ReadBlocks(ctx, number)
		if err != nil {
			return Remaining{}, err
		}

		for _, b := range blocks {
			waiting += max(b.HeldCount, 1)
		}
	}

	rest := Remaining{Waiting: waiting}
	if waiting > 0 || len(c.Pauses(l.Store.Now())) > 0 {
		rest.Until, rest.Reason = pausedFor(c, l.Store.Now())
	}

	shut := c.Tail.SettleUntil
	if !shut.IsZero() && shut.Add(lane.ClockSkew).After(l.Store.Now()) && shut.After(rest.Until) {
		rest.Until = shut.Add(lane.ClockSkew)
	}

	return rest, nil
}

// Close closes a sealed lane if no work is left in it, and reports whether the lane is closed. No
// process can hold a closed lane. The caller must have the lane's lease, and ctx must end with the
// lease. The parameter settle is the longest time for which the CMS can still work on a request of
// a crashed holder.
func (l Lanes) Close(ctx context.Context, number int, nonce string,
	settle time.Duration) (closed bool, err error) {
	w, err := l.Store.RaiseFence(ctx, number, nonce, lane.Tail{}, func(t *lane.Tail) {
		if t.IsOpen {
			t.SettleUntil, t.IsOpen = l.Store.Now().Add(settle+lane.ClockSkew), false
		}
	})
	if errors.Is(err, lane.ErrClosed) {
		return true, nil
	}
	if err != nil {
		return false, err
	}

	c, err := l.Store.ReadControl(ctx, number)
	if err != nil || !c.Head.IsSealed {
		return false, err
	}

	c.Tail = w.Tail()
	rest, err := l.remainingOf(ctx, number, c)
	if err != nil || !rest.IsEmpty() {
		return false, err
	}

	var change lane.Change
	change.UpdateTail(func(t *lane.Tail) { t.IsClosed = true })
	var tx lane.Transaction
	tx.TryAdd(&change)
	err = w.Commit(ctx, &tx)

	return err == nil, err
}

// CloseAsIs closes a sealed lane, whatever waits in it. A tail that shows an interrupted session
// keeps doing so: the next holder counts the crash. The caller must have the lane's lease, and ctx
// must end with the lease.
func (l Lanes) CloseAsIs(ctx context.Context, number int, nonce string) error {
	w, err := l.Store.RaiseFence(ctx, number, nonce, lane.Tail{}, func(*lane.Tail) {})
	if errors.Is(err, lane.ErrClosed) {
		return nil
	}
	if err != nil {
		return err
	}

	var change lane.Change
	change.UpdateTail(func(t *lane.Tail) { t.IsClosed = true })
	var tx lane.Transaction
	tx.TryAdd(&change)

	return w.Commit(ctx, &tx)
}

// Reopen reopens a closed lane, so that a process can hold it again. The caller must have the
// lane's lease. Reopen writes tail even if the lane is not closed, so that a late write of Close
// fails.
func (l Lanes) Reopen(ctx context.Context, number int, nonce string) error {
	_, err := l.Store.RaiseFence(ctx, number, nonce, lane.Tail{},
		func(t *lane.Tail) { t.IsClosed, t.MovedRecorded = false, false })
	return err
}

func (l Lanes) readKeys(ctx context.Context, number int, prefix string) ([]string, error) {
	var keys []string
	q := rows.WithPrefix(l.Store.Partition(number), prefix, rows.Names(rows.Seq))
	for r, err := range rows.Scan(ctx, l.Store.Table, q) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, r.Key)
	}

	return keys, nil
}

// pausedFor returns the end and the reason of one pause. If the lane is paused because of the CMS,
// pausedFor returns that pause. Otherwise it returns an operator's pause of the lane or of a key.
// If nothing is paused, it returns zero values.
func pausedFor(c lane.Control, now time.Time) (until time.Time, reason string) {
	if c.Tail.PausedUntil.After(now) {
		return c.Tail.PausedUntil, "the CMS is unavailable (" + c.Tail.PauseReason + ")"
	}

	pauses := c.Pauses(now)
	if missing := c.MissingContracts(); len(pauses) == 0 && len(missing) > 0 {
		return c.Tail.NextDueAt,
			fmt.Sprintf("the settings lack the contract %q, for which messages wait: put it back, "+
				"or cancel them", missing[0].Contract)
	}

	if len(pauses) == 0 {
		return time.Time{}, ""
	}

	p := pauses[0]
	if p.Key == "" {
		return p.Ends(), fmt.Sprintf("lane %d is paused (%s): resume it", p.Lane, p.Reason)
	}

	return p.Ends(), fmt.Sprintf("key %q is paused (%s): resume it", p.Key, p.Reason)
}
