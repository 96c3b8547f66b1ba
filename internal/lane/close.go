package lane

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// ErrClosed means that the lane's epoch is over, or about to end: no process may hold the lane.
var ErrClosed = errors.New("closed: the number of lanes is being changed")

// sealedRetry is the Retry-After of a refused post. A change of the number of lanes takes seconds if the lanes
// become empty soon, and repeating a post costs no more than waiting.
const sealedRetry = 10 * time.Second

func errSealed(op string) error {
	return &weir.Error{Kind: weir.Unavailable, Op: op, Message: "the number of lanes is being changed; try again",
		RetryAfter: sealedRetry}
}

// SealLane seals a lane's head. Every append is conditional on head's ETag, so a message that is not filed
// when SealLane returns never will be.
func (s *Store) SealLane(ctx context.Context, lane int) error {
	_, err := s.updateControl(ctx, lane, func(c Control) (bool, storage.Op) {
		return c.Head.IsSealed, headOp(c.Head, rows.Values(rows.IsSealed.Is(true)))
	})
	return err
}

// UnsealLane opens head again, and makes the next holder look for messages that fell due meanwhile. It writes
// head even if head is open, so that a late request to seal it fails.
func (s *Store) UnsealLane(ctx context.Context, lane int) error {
	var first storage.ETag
	_, err := s.updateControl(ctx, lane, func(c Control) (bool, storage.Op) {
		if first == "" {
			first = c.Head.ETag
		}
		return !c.Head.IsSealed && c.Head.ETag != first, headOp(c.Head,
			rows.Values(rows.IsSealed.Is(false), rows.RequestSeq.Is(c.Head.RequestSeq+1)))
	})
	return err
}

func headOp(h Head, v map[string]any) storage.Op {
	return storage.Op{Kind: storage.Merge, Key: rows.HeadKey, IfMatch: h.ETag, Values: v}
}

// RecordMoved records in a closed lane's tail how many of its dead and scheduled messages have moved. From then
// on the next epoch counts them.
func (s *Store) RecordMoved(ctx context.Context, lane int) error {
	dead, err := s.readKeys(ctx, lane, rows.DeadPrefix)
	if err != nil {
		return err
	}
	scheduled, err := s.readKeys(ctx, lane, rows.DuePrefix)
	if err != nil {
		return err
	}
	_, err = s.updateControl(ctx, lane, func(c Control) (bool, storage.Op) {
		return c.Tail.MovedRecorded, storage.Op{Kind: storage.Merge, Key: rows.TailKey, IfMatch: c.Tail.ETag,
			Values: rows.Values(
				rows.MovedRecorded.Is(true), rows.Dead.Is(c.Tail.Counts.Dead-int64(len(dead))),
				rows.Moved.Is(int64(len(dead)+len(scheduled))))}
	})
	return err
}

// updateControl repeats a conditional write of a control row until it is known to be done.
func (s *Store) updateControl(ctx context.Context, lane int, op func(Control) (done bool, op storage.Op)) (c Control,
	err error) {
	err = rows.Update(ctx, func() (bool, error) {
		if c, err = s.ReadControl(ctx, lane); err != nil {
			return !isUncertain(err), err
		}
		done, write := op(c)
		if done {
			return true, nil
		}
		_, err = s.Table.Transact(ctx, s.partitionOf(lane), []storage.Op{write})
		return !isUncertain(err), err
	}, pauseUnlessLost)
	return c, err
}

// pauseUnlessLost returns the pause before a conditional write is repeated. There is none after a lost race.
func pauseUnlessLost(err error) time.Duration {
	if storage.Is(err, storage.Precondition) {
		return 0
	}
	return resendPause
}

// Remaining is the work that keeps a sealed lane from being closed.
type Remaining struct {
	Waiting int64     // messages in the log, or, if there are none, held messages
	Until   time.Time // until then no message is sent; zero = soon
	Reason  string    // why the lane is paused; empty = it is not
}

// IsEmpty reports whether the lane can be closed.
func (r Remaining) IsEmpty() bool { return r == Remaining{} }

// ReadRemaining returns the work that is left in a lane: messages in the log, held messages, requests, and
// writes that may still be at work in the CMS. Scheduled messages do not count. An operator's pause that was
// written just before the seal counts, because the next epoch would lack it.
func (s *Store) ReadRemaining(ctx context.Context, lane int) (Remaining, error) {
	c, err := s.ReadControl(ctx, lane)
	if err != nil {
		return Remaining{}, err
	}
	return s.remainingOf(ctx, lane, c)
}

func (s *Store) remainingOf(ctx context.Context, lane int, c Control) (Remaining, error) {
	waiting := c.Head.Next - c.Tail.Cursor
	if c.HasRequests() {
		waiting = max(waiting, 1)
	}
	if waiting == 0 {
		blocks, err := s.ReadBlocks(ctx, lane)
		if err != nil {
			return Remaining{}, err
		}
		for _, b := range blocks {
			waiting += max(b.HeldCount, 1)
		}
	}
	rest := Remaining{Waiting: waiting}
	if waiting > 0 || len(c.Pauses(s.Now())) > 0 {
		rest.Until, rest.Reason = c.pausedFor(s.Now())
	}
	for _, shut := range []time.Time{c.Tail.SettleUntil, c.Tail.NextAllowedAt} {
		if !shut.IsZero() && shut.Add(clockSkew).After(s.Now()) && shut.After(rest.Until) {
			rest.Until = shut.Add(clockSkew)
		}
	}
	return rest, nil
}

// clockSkew is how far the clocks of two processes may differ.
const clockSkew = 2 * time.Second

// CloseLane closes a sealed lane if no work is left in it; then no process can hold the lane. The caller has
// its lease, and ctx ends with the lease. settle is how long a request of a crashed holder may still be at work
// in the CMS.
func (s *Store) CloseLane(ctx context.Context, lane int, nonce string, settle time.Duration) (closed bool, err error) {
	w, err := s.RaiseFence(ctx, lane, nonce, Tail{}, func(t *Tail) {
		if t.IsOpen {
			t.SettleUntil, t.IsOpen = s.Now().Add(settle+clockSkew), false
		}
	})
	if errors.Is(err, ErrClosed) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	c, err := s.ReadControl(ctx, lane)
	if err != nil || !c.Head.IsSealed {
		return false, err
	}
	c.Tail = w.tail
	rest, err := s.remainingOf(ctx, lane, c)
	if err != nil || !rest.IsEmpty() {
		return false, err
	}
	next := w.tail
	next.CommitSeq++
	next.IsClosed = true
	err = w.writeTail(ctx, next, nil)
	return err == nil, err
}

// ReopenLane lets a closed lane be held again. The caller has its lease. It writes tail even if tail is open,
// so that a late request to close it fails.
func (s *Store) ReopenLane(ctx context.Context, lane int, nonce string) error {
	_, err := s.raiseFence(ctx, lane, nonce, Tail{}, func(t *Tail) bool { t.IsClosed = false; return true })
	return err
}

// readKeys reads the keys of a lane's rows that begin with prefix.
func (s *Store) readKeys(ctx context.Context, lane int, prefix string) ([]string, error) {
	var keys []string
	q := rows.WithPrefix(s.partitionOf(lane), prefix, rows.Names(rows.Seq))
	for r, err := range rows.Scan(ctx, s.Table, q) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, r.Key)
	}
	return keys, nil
}
