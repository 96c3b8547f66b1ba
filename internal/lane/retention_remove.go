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

// removeExpired removes the expired messages of a page, in the order of the log. After each
// transaction it moves the walk's position forward. It returns early if the time of the run is
// over.
func (t *retentionRun) removeExpired(ctx context.Context, messages []*expiringMessage,
	now time.Time) error {
	var over []*expiringMessage
	for _, m := range messages {
		if end, ok := t.endOf(m, now); ok && !end.After(now) {
			over = append(over, m)
		}
	}

	if err := t.removeBodies(ctx, over); err != nil {
		return err
	}

	over = slices.DeleteFunc(over, func(m *expiringMessage) bool { return m.isKept })
	for len(over) > 0 {
		group := nextGroup(over)
		if err := t.removeGroup(ctx, group); err != nil {
			return err
		}

		over = over[len(group):]
		t.walk.seq = group[len(group)-1].seq
		if t.isSpent() {
			return nil
		}
	}

	if len(messages) > 0 {
		t.walk.seq = messages[len(messages)-1].seq
	}

	return nil
}

// mostUncertain is the number of body removals of one page that are allowed to fail without a
// definite answer of storage. If there are more such failures, storage counts as unavailable and
// the run ends. The next run tries the page again.
const mostUncertain = 8

// removeBodies removes the blobs of messages. The caller must remove the rows afterwards, because a
// walk finds a message's blob only through the message's row.
func (t *retentionRun) removeBodies(ctx context.Context, messages []*expiringMessage) error {
	var large []*expiringMessage
	for _, m := range messages {
		if acceptedBody.blob.Of(m.rowValues())+editedBody.blob.Of(m.rowValues()) != "" {
			large = append(large, m)
		}
	}

	var failed atomic.Int64
	return ForEach(len(large), func(i int) error {
		m := large[i]
		err := t.removeBody(ctx, m)
		m.isKept = err != nil
		if err == nil || errors.Is(err, errChanged) {
			return nil
		}
		if isUndecided(err) && failed.Add(1) > mostUncertain || ctx.Err() != nil {
			return err
		}

		t.reportRefused(t.lane, m.seq, err)

		return nil
	})
}

// errChanged means that a message's row was changed or removed after this run had read the row.
var errChanged = errors.New("the message was changed")

// removeBody removes the blobs of a message. In the row of a dead message it first sets
// rows.IsBeingRemoved, so that no replay is accepted after the body is gone.
func (t *retentionRun) removeBody(ctx context.Context, m *expiringMessage) error {
	if m.stage == weir.Dead {
		etags, err := t.Store.Table.Transact(ctx, t.Store.Partition(t.lane), []storage.Op{
			{Kind: storage.Merge, Key: m.row.Key, IfMatch: m.row.ETag,
				Values: rows.Values(rows.IsBeingRemoved.Is(true))}})
		if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
			return errChanged
		}
		if err != nil {
			return err
		}

		m.row.ETag = etags[0]
	}

	for _, in := range []bodyColumns{acceptedBody, editedBody} {
		if err := t.Store.RemoveBody(ctx, in.blob.Of(m.rowValues())); err != nil {
			return err
		}
	}

	return nil
}

// deleteOps returns the operations that delete the rows of a message, its own row (m_) first. It
// leaves the packed row (d_) to deleteOpsOf.
func (m *expiringMessage) deleteOps() []storage.Op {
	v := m.rowValues()
	ops := []storage.Op{{Kind: storage.Delete, Key: m.row.Key, IfMatch: m.row.ETag}}
	if idem := rows.IdempotencyRow.Of(v); idem != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: idem})
	}

	if old := rows.CopiedFrom.Of(v); old != "" {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.CopyPrefix + old})
	}

	if m.stage == weir.Dead {
		ops = append(ops, storage.Op{Kind: storage.Delete,
			Key: rows.DeadPrefix + strings.TrimPrefix(m.row.Key, rows.MessagePrefix)})
	}

	return ops
}

// nextGroup returns the first messages, as many as one transaction can delete with all their rows.
func nextGroup(messages []*expiringMessage) []*expiringMessage {
	ops, n := 0, 0
	for _, m := range messages {
		ops += len(m.deleteOps())
		if m.packed != nil && (n == 0 || messages[n-1].packed != m.packed) {
			ops++ // for the packed row (d_)
		}

		if ops > maxBatchOps {
			break
		}

		n++
	}

	return messages[:n]
}

// deleteOpsOf returns the operations that delete the rows of messages. They also delete a packed
// row (d_) if no other message of that row is left in storage.
func deleteOpsOf(messages []*expiringMessage) []storage.Op {
	var ops []storage.Op
	here := map[*expiringPacked]int{}
	for _, m := range messages {
		ops = append(ops, m.deleteOps()...)
		if p := m.packed; p != nil {
			if here[p]++; here[p] == p.left {
				ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.PackedKey(p.highSeq)})
			}
		}
	}

	return ops
}

// removeGroup removes messages with one transaction. If storage refuses the transaction,
// removeGroup removes each message alone, so that one changed or refused message does not block the
// others.
func (t *retentionRun) removeGroup(ctx context.Context, group []*expiringMessage) error {
	began, ops := time.Now(), deleteOpsOf(group)
	_, err := t.Store.Table.Transact(ctx, t.Store.Partition(t.lane), ops)
	switch {
	case err == nil:
		t.countGone(group...)
	case isUndecided(err):
		return err
	default:
		for _, m := range group {
			if err := t.removeOne(ctx, m); err != nil {
				return err
			}
		}
	}

	clock.Sleep(ctx, time.Duration(len(ops))*time.Second/removalRate-time.Since(began))

	return nil
}

func (t *retentionRun) countGone(messages ...*expiringMessage) {
	for _, m := range messages {
		if m.packed != nil {
			m.packed.left--
		}
	}

	t.removed += len(messages)
	t.countRemoved(len(messages), 0)
}

// removeOne removes one message with a transaction of its own. If storage refuses to remove the
// message, the message stays until a later walk.
func (t *retentionRun) removeOne(ctx context.Context, m *expiringMessage) error {
	for ops := deleteOpsOf([]*expiringMessage{m}); ; {
		_, err := t.Store.Table.Transact(ctx, t.Store.Partition(t.lane), ops)
		at := storage.FailedAt(err)
		switch {
		case err == nil:
			t.countGone(m)
			return nil
		case isUndecided(err):
			return err
		case storage.Is(err, storage.Precondition):
			// the row was changed after this run had read it: the next walk checks the message
			return nil
		case storage.Is(err, storage.NotFound) && at > 0 && len(ops) > 1:
			// another process has deleted one of the message's rows
			ops = slices.Delete(ops, at, at+1)
		case storage.Is(err, storage.NotFound) && at <= 0 && t.isGone(ctx, m):
			return errOtherProcess
		default:
			t.reportRefused(t.lane, m.seq, err)
			return nil
		}
	}
}

func (t *retentionRun) isGone(ctx context.Context, m *expiringMessage) bool {
	_, err := t.Store.Table.Get(ctx, t.Store.Partition(t.lane), m.row.Key)
	return storage.Is(err, storage.NotFound)
}

// isUndecided reports whether err means that storage did not answer, or asked to slow down. Any
// other error is a final refusal.
func isUndecided(err error) bool {
	switch storage.KindOf(err) {
	case storage.Ambiguous, storage.Throttled, storage.Unavailable:
		return true
	}
	return false
}

// removeEmpty removes packed rows (d_) that have no message left. Such a row stays if two processes
// at the same time each remove one of its last two messages.
func (t *retentionRun) removeEmpty(ctx context.Context, empty []packedRow) error {
	for chunk := range slices.Chunk(empty, maxBatchOps) {
		ops := make([]storage.Op, len(chunk))
		for i, f := range chunk {
			ops[i] = storage.Op{Kind: storage.Delete, Key: rows.PackedKey(f.highSeq),
				IfMatch: f.etag}
		}

		_, err := t.Store.Table.Transact(ctx, t.Store.Partition(t.lane), ops)
		if err != nil && !storage.Is(err, storage.NotFound) {
			return err
		}
	}

	return nil
}
