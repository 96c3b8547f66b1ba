package lane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// remove removes those of a page's messages whose retention is over, in the order of the log,
// and moves the walk's place behind each transaction. It stops when the share is spent.
func (t *turn) remove(ctx context.Context, messages []*expiring, now time.Time) error {
	var over []*expiring
	for _, m := range messages {
		if end, ok := t.endOf(m, now); ok && !end.After(now) {
			over = append(over, m)
		}
	}
	if err := t.removeBodies(ctx, over); err != nil {
		return err
	}
	over = slices.DeleteFunc(over, func(m *expiring) bool { return m.kept })
	for len(over) > 0 {
		batch := nextBatch(over)
		if err := t.removeBatch(ctx, batch); err != nil {
			return err
		}
		over = over[len(batch):]
		t.walk.seq = batch[len(batch)-1].seq
		if t.isSpent() {
			return nil
		}
	}
	if len(messages) > 0 {
		t.walk.seq = messages[len(messages)-1].seq
	}
	return nil
}

// mostUncertain is how many removals of a page's bodies may fail without a verdict of storage.
// More of them mean that storage cannot be reached, and the page is tried again.
const mostUncertain = 8

// removeBodies removes the blobs of messages before their rows: no later walk would find a blob
// whose row is gone.
func (t *turn) removeBodies(ctx context.Context, messages []*expiring) error {
	var large []*expiring
	for _, m := range messages {
		if acceptedBody.blob.Of(m.values())+editedBody.blob.Of(m.values()) != "" {
			large = append(large, m)
		}
	}
	var failed atomic.Int64
	return ForEach(len(large), func(i int) error {
		m := large[i]
		err := t.removeBody(ctx, m)
		m.kept = err != nil
		if err == nil || errors.Is(err, errChanged) {
			return nil
		}
		if isUndecided(err) && failed.Add(1) > mostUncertain || ctx.Err() != nil {
			return err
		}
		t.refused(t.lane, m.seq, err)
		return nil
	})
}

// errChanged means that a message was changed since it was read: the next walk looks again.
var errChanged = errors.New("the message was changed")

// removeBody removes the blobs of a message. It first marks the row of a dead message, so that no
// replay is accepted whose body is gone.
func (t *turn) removeBody(ctx context.Context, m *expiring) error {
	if m.stage == weir.Dead {
		etags, err := t.Store.Table.Transact(ctx, t.Store.partition(t.lane), []storage.Op{
			{Kind: storage.Merge, Key: m.row.Key, IfMatch: m.row.ETag, Values: rows.Values(rows.IsBeingRemoved.Is(true))}})
		if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
			return errChanged
		}
		if err != nil {
			return err
		}
		m.row.ETag = etags[0]
	}
	for _, in := range []bodyColumns{acceptedBody, editedBody} {
		if err := t.Store.RemoveBody(ctx, in.blob.Of(m.values())); err != nil {
			return err
		}
	}
	return nil
}

// ops removes a message's rows, the message's own first. Its d_ row is not among them.
func (m *expiring) ops() []storage.Op {
	v := m.values()
	ops := []storage.Op{{Kind: storage.Delete, Key: m.row.Key, IfMatch: m.row.ETag}}
	if idem := rows.IdempotencyRow.Of(v); idem != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: idem})
	}
	if old := rows.CopiedFrom.Of(v); old != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.CopyPrefix + old})
	}
	if m.stage == weir.Dead {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.DeadPrefix + strings.TrimPrefix(m.row.Key, rows.MessagePrefix)})
	}
	return ops
}

// nextBatch takes the first messages, as many as one transaction removes with all their rows.
func nextBatch(messages []*expiring) []*expiring {
	ops, n := 0, 0
	for _, m := range messages {
		ops += len(m.ops())
		if m.packed != nil && (n == 0 || messages[n-1].packed != m.packed) {
			ops++ // room for the d_ row
		}
		if ops > maxBatchOps {
			break
		}
		n++
	}
	return messages[:n]
}

// opsOf removes the rows of messages, and the d_ rows whose last messages they are.
func opsOf(messages []*expiring) []storage.Op {
	var ops []storage.Op
	here := map[*packed]int{}
	for _, m := range messages {
		ops = append(ops, m.ops()...)
		if p := m.packed; p != nil {
			if here[p]++; here[p] == p.left {
				ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.PackedKey(p.high)})
			}
		}
	}
	return ops
}

// removeBatch removes messages with one transaction. If storage refuses that, it removes each
// message by itself: one that was changed, or cannot be removed, holds up no other.
func (t *turn) removeBatch(ctx context.Context, batch []*expiring) error {
	began, ops := time.Now(), opsOf(batch)
	_, err := t.Store.Table.Transact(ctx, t.Store.partition(t.lane), ops)
	switch {
	case err == nil:
		t.noteGone(batch...)
	case isUndecided(err):
		return err
	default:
		for _, m := range batch {
			if err := t.removeOne(ctx, m); err != nil {
				return err
			}
		}
	}
	clock.Sleep(ctx, time.Duration(len(ops))*time.Second/removalRate-time.Since(began))
	return nil
}

// noteGone notes that messages were removed.
func (t *turn) noteGone(messages ...*expiring) {
	for _, m := range messages {
		if m.packed != nil {
			m.packed.left--
		}
	}
	t.removed += len(messages)
	t.count(len(messages), 0)
}

// removeOne removes one message.
func (t *turn) removeOne(ctx context.Context, m *expiring) error {
	for ops := opsOf([]*expiring{m}); ; {
		_, err := t.Store.Table.Transact(ctx, t.Store.partition(t.lane), ops)
		at := storage.FailedAt(err)
		switch {
		case err == nil:
			t.noteGone(m)
			return nil
		case isUndecided(err):
			return err
		case storage.Is(err, storage.Precondition):
			return nil // changed since it was read: the next walk looks again
		case storage.Is(err, storage.NotFound) && at > 0 && len(ops) > 1:
			ops = slices.Delete(ops, at, at+1) // a row that goes with the message is gone already
		case storage.Is(err, storage.NotFound) && at <= 0 && t.isGone(ctx, m):
			return errElsewhere
		default:
			t.refused(t.lane, m.seq, err)
			return nil
		}
	}
}

// isGone reports whether a message's row was removed.
func (t *turn) isGone(ctx context.Context, m *expiring) bool {
	_, err := t.Store.Table.Get(ctx, t.Store.partition(t.lane), m.row.Key)
	return storage.Is(err, storage.NotFound)
}

// isUndecided reports whether storage gave no verdict on a change.
func isUndecided(err error) bool {
	switch storage.KindOf(err) {
	case storage.Ambiguous, storage.Throttled, storage.Unavailable:
		return true
	}
	return false
}

// removeEmpty removes d_ rows without messages: two processes have removed the last messages at
// the same time, and neither knew that they were the last.
func (t *turn) removeEmpty(ctx context.Context, empty []firsts) error {
	for chunk := range slices.Chunk(empty, maxBatchOps) {
		ops := make([]storage.Op, len(chunk))
		for i, f := range chunk {
			ops[i] = storage.Op{Kind: storage.Delete, Key: rows.PackedKey(f.high), IfMatch: f.etag}
		}
		_, err := t.Store.Table.Transact(ctx, t.Store.partition(t.lane), ops)
		if err != nil && !storage.Is(err, storage.NotFound) {
			return err
		}
	}
	return nil
}
