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

// Lanes has the lanes of the epoch that ends. Methods may be called concurrently for different lanes.
type Lanes struct{ Store *lane.Store }

// Seal seals a lane's head. Every append is conditional on head's ETag. So a message that is not filed when Seal
// returns is never filed.
func (l Lanes) Seal(ctx context.Context, number int) error {
	return l.updateControl(ctx, number, func(c lane.Control) (bool, storage.Op) {
		return c.Head.IsSealed, c.Head.UpdateOp(rows.IsSealed.Is(true))
	})
}

// Unseal opens head again, and makes the next holder look for messages that became due meanwhile. It writes
// head even if head is open, so that a late request to seal it fails.
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

// RecordMoved records in a closed lane's tail how many of its dead and scheduled messages have moved. From then
// on the next epoch counts them.
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

// updateControl repeats a conditional write of a control row until it is known to be done.
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

// pauseUnlessLost returns the pause before a conditional write is repeated. After a lost race it is 0.
func pauseUnlessLost(err error) time.Duration {
	if storage.Is(err, storage.Precondition) {
		return 0
	}
	return rows.ResendPause
}

// Remaining is the work that keeps a sealed lane from being closed.
type Remaining struct {
	Waiting int64     // number of messages in the log; if the log has none, of held messages
	Until   time.Time // the lane sends nothing until then; zero = soon
	Reason  string    // why the lane is paused; empty = the lane is not paused
}

// IsEmpty reports whether the lane can be closed.
func (r Remaining) IsEmpty() bool { return r == Remaining{} }

// ReadRemaining returns the work that is left in a lane: messages in the log, held messages, requests, and
// writes that may still be at work in the CMS. Scheduled messages do not count. An operator's pause that was
// written just before the seal counts, because the next epoch would lack it.
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
	for _, shut := range []time.Time{c.Tail.SettleUntil, c.Tail.NextAllowedAt} {
		if !shut.IsZero() && shut.Add(lane.ClockSkew).After(l.Store.Now()) && shut.After(rest.Until) {
			rest.Until = shut.Add(lane.ClockSkew)
		}
	}
	return rest, nil
}

// Close closes a sealed lane if no work is left in it; then no process can hold the lane. The caller has the lane's
// lease, and ctx ends with the lease. The CMS may still work on a request of a crashed holder; settle is the longest
// time for that.
func (l Lanes) Close(ctx context.Context, number int, nonce string, settle time.Duration) (closed bool, err error) {
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
	var batch lane.Batch
	batch.TryAdd(&change)
	err = w.Commit(ctx, &batch)
	return err == nil, err
}

// Reopen lets a closed lane be held again. The caller has the lane's lease. Reopen writes tail even if tail is open, so
// that a late request to close it fails.
func (l Lanes) Reopen(ctx context.Context, number int, nonce string) error {
	_, err := l.Store.RaiseFence(ctx, number, nonce, lane.Tail{}, func(t *lane.Tail) { t.IsClosed = false })
	return err
}

// readKeys reads the keys of a lane's rows that begin with prefix.
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

// pausedFor returns the end of a lane's pause, and the reason of the pause. Until then the lane sends no messages, or
// not the messages of a paused key. An operator's pause that was written just before the lane was sealed can still be
// resumed.
func pausedFor(c lane.Control, now time.Time) (until time.Time, reason string) {
	if c.Tail.PausedUntil.After(now) {
		return c.Tail.PausedUntil, "the CMS is unavailable (" + c.Tail.PauseReason + ")"
	}
	pauses := c.Pauses(now)
	if len(pauses) == 0 {
		return time.Time{}, ""
	}
	p := pauses[0]
	if p.Key == "" {
		return p.Ends(), fmt.Sprintf("lane %d is paused (%s): resume it", p.Lane, p.Reason)
	}
	return p.Ends(), fmt.Sprintf("key %q is paused (%s): resume it", p.Key, p.Reason)
}
