package lane

import (
	"context"
	"slices"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// BulkCounts counts messages by the result of CancelMany or DiscardMany.
type BulkCounts struct {
	Cancelled int64 // scheduled messages, which are cancelled when CancelMany returns
	Asked     int64 // messages for which a request waits for the holder
	TooLate   int64 // messages that another change has reached first, or that were removed
}

// CancelMany cancels the scheduled messages among the entries, and asks the holder to cancel the
// others. The entries are of one lane, and come from ReadMany or EntriesFrom. After an error, the
// counts have only the messages before the failed one. The call can be repeated.
func (rs Requests) CancelMany(ctx context.Context, lane int, entries []*Entry) (counts BulkCounts,
	err error) {
	nonce, at := newNonce(), rs.store.Now().UTC().Truncate(time.Microsecond)
	c := manyChange{requests: rs, lane: lane}
	c.opsOf = func(e *Entry) []storage.Op {
		if e.Stage == weir.Scheduled {
			return cancelOps(e, at, nonce)
		}
		return []storage.Op{{Kind: storage.Insert, Key: cancelKey(e.Seq()),
			Values: rows.Values(rows.Seq.Is(e.Seq()))}}
	}

	c.noteDone = func(e *Entry) {
		counts.countCancelled(e.Stage == weir.Scheduled)
		if e.Stage == weir.Scheduled && e.Message.Callback != "" && rs.store.Notifier != nil {
			rs.store.Notifier.WakeOutbox(lane)
		}
	}

	c.changeAlone = func(ctx context.Context, e *Entry) error {
		st, err := rs.cancelWithNonce(ctx, e.Message.ID, nonce)
		if err == nil {
			counts.countCancelled(st.Stage == weir.Cancelled)
		}
		return counts.countTooLate(err)
	}

	err = c.changeAll(ctx, entries)

	return counts, err
}

// DiscardMany requests that the holder discards dead messages of one lane. The entries come from
// ReadMany. After an error, the counts have only the messages that were handled before the error.
// The call can be repeated.
func (rs Requests) DiscardMany(ctx context.Context, lane int, entries []*Entry,
	reason string) (counts BulkCounts, err error) {
	c := manyChange{requests: rs, lane: lane}
	c.opsOf = func(e *Entry) []storage.Op {
		if e.Stage != weir.Dead || !e.status.ReplayAskedAt.IsZero() ||
			!e.status.DiscardAskedAt.IsZero() {
			return nil // Discard checks whether another request waits
		}
		return discardRequestOps(e, rs.store.Now(), reason)
	}

	c.noteDone = func(*Entry) { counts.Asked++ }
	c.changeAlone = func(ctx context.Context, e *Entry) error {
		_, err := rs.Discard(ctx, e.Message.ID, reason)
		if err == nil {
			counts.Asked++
		}
		return counts.countTooLate(err)
	}

	err = c.changeAll(ctx, entries)

	return counts, err
}

func (c *BulkCounts) countCancelled(atOnce bool) {
	if atOnce {
		c.Cancelled++
		return
	}
	c.Asked++
}

// countTooLate counts a message that cannot be changed any more. It returns every other error.
func (c *BulkCounts) countTooLate(err error) error {
	if isRefused(err) {
		c.TooLate++
		return nil
	}
	return err
}

// isRefused reports whether a request was refused because of the state of its message.
func isRefused(err error) bool {
	kind := weir.KindOf(err)
	return err != nil && (kind == weir.Conflict || kind == weir.NotFound)
}

// manyChange makes the same change to many messages of one lane. One transaction has the changes of
// as many messages as fit into it. It fails if one of the messages has changed, so a failed
// transaction is followed by the change of each of its messages alone.
type manyChange struct {
	requests    Requests
	lane        int
	opsOf       func(*Entry) []storage.Op           // none = the message is changed alone
	noteDone    func(*Entry)                        // a transaction has made the change
	changeAlone func(context.Context, *Entry) error // an error ends the call
}

// changeAll changes the messages in their order.
func (c *manyChange) changeAll(ctx context.Context, entries []*Entry) error {
	for len(entries) > 0 {
		group := c.nextGroup(entries)
		if err := c.changeTogether(ctx, group); err != nil {
			return err
		}
		entries = entries[len(group.entries):]
	}

	return nil
}

// changeGroup is the first messages of a call whose changes fit into one transaction.
type changeGroup struct {
	entries []*Entry
	isAlone []bool // by message: it has no operations in ops
	ops     []storage.Op
}

// nextGroup returns the group of the first messages. One operation of the transaction is for head.
func (c *manyChange) nextGroup(entries []*Entry) (g changeGroup) {
	hasMarker := false
	for _, e := range entries {
		more := c.opsOf(e)
		if hasMarker {
			// a transaction must not write a row twice
			more = slices.DeleteFunc(more, isOutboxMarker)
		}

		if len(g.ops)+len(more) >= storage.MaxOps {
			break
		}

		g.entries, g.isAlone = append(g.entries, e), append(g.isAlone, len(more) == 0)
		g.ops, hasMarker = append(g.ops, more...), hasMarker ||
			slices.ContainsFunc(more, isOutboxMarker)
	}

	return g
}

func isOutboxMarker(op storage.Op) bool { return op.Key == rows.OutboxKey }

func (c *manyChange) changeTogether(ctx context.Context, g changeGroup) error {
	var failed error
	if len(g.ops) > 0 {
		failed = c.transact(ctx, g.ops)
	}

	for i, e := range g.entries {
		if failed == nil && !g.isAlone[i] {
			c.noteDone(e)
			continue
		}

		if err := c.changeAlone(ctx, e); err != nil {
			return err
		}
	}

	return nil
}

// transact makes the transaction of a group, and once more if another process, such as a receiver,
// has changed head meanwhile. A busy lane would else be changed message by message.
func (c *manyChange) transact(ctx context.Context, ops []storage.Op) error {
	err := c.requests.raiseRequestSeq(ctx, c.lane, ops)
	if !storage.Is(err, storage.Precondition) || storage.FailedAt(err) > 0 ||
		!clock.Sleep(ctx, c.requests.store.drawPause(conflictPause)) {
		return err
	}
	return c.requests.raiseRequestSeq(ctx, c.lane, ops)
}
