package lane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// EpochCopy copies messages of closed lanes into the lanes of the next epoch: scheduled and dead ones, and the
// versions that were delivered last. No other process writes there before the next epoch opens. The copy can be
// repeated at any point: an o_ row, written with each copy, shows that the message is copied, and every
// transaction has a condition on the new lane's head, so a late one does nothing.
type EpochCopy struct {
	From, To *Store
}

const (
	// copyReadSize is how many messages are read before they are written.
	copyReadSize = 256
	// copyMaxSparseness is how many rows may be read for each wanted one.
	copyMaxSparseness = 4
	// copyGroupSize is how many messages a transaction can copy: it has two control rows, and three rows a
	// message.
	copyGroupSize = (storage.MaxOps - 2) / 3
)

// Prepare creates the control rows of the new lanes. Their fences start at the highest fence of the old lanes,
// so that the fence of a key never falls.
func (r *EpochCopy) Prepare(ctx context.Context) error {
	fences := make([]int64, r.From.Lanes)
	err := ForEach(r.From.Lanes, func(lane int) error {
		c, err := r.From.ReadControl(ctx, lane)
		fences[lane] = c.Tail.Fence
		return err
	})
	if err != nil {
		return err
	}
	fence := slices.Max(fences)
	return ForEach(r.To.Lanes, func(lane int) error { return r.To.insertControlRows(ctx, lane, fence) })
}

// CopyLane copies one old lane, in the order of its log.
func (r *EpochCopy) CopyLane(ctx context.Context, lane int) error {
	if err := r.copyVersions(ctx, lane); err != nil {
		return fmt.Errorf("delivered versions: %w", err)
	}
	list, err := r.listMessages(ctx, lane)
	if err != nil {
		return err
	}
	order, err := r.readKeyOrder(ctx, lane)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(list, copyReadSize) {
		if err := r.readMessages(ctx, lane, chunk); err != nil {
			return err
		}
		if err := order.recordReplayBlocks(r.From, chunk); err != nil {
			return err
		}
		byLane := map[int][]*copiedMessage{}
		for _, m := range chunk {
			if m.row.Key != "" {
				to := Of(rows.Key.Of(m.row.Values), r.To.Lanes)
				byLane[to] = append(byLane[to], m)
			}
		}
		targets := slices.Sorted(maps.Keys(byLane))
		err := ForEach(len(targets), func(i int) error { return r.copyMessages(ctx, targets[i], byLane[targets[i]]) })
		if err != nil {
			return err
		}
		clear(chunk) // frees the bodies
	}
	return nil
}

// copiedMessage is a message that is being copied.
type copiedMessage struct {
	id        weir.ID // in the old epoch
	index     storage.Row
	row       storage.Row // its m_ row; no key = the row is gone
	blockedBy string      // see Entry.replayBlockedBy
}

// listMessages reads the index rows of the messages to copy, in the order of the log and of releases.
func (r *EpochCopy) listMessages(ctx context.Context, lane int) ([]*copiedMessage, error) {
	var list []*copiedMessage
	for _, prefix := range []string{rows.DeadPrefix, rows.DuePrefix} {
		for row, err := range rows.Scan(ctx, r.From.Table, rows.WithPrefix(r.From.partitionOf(lane), prefix, nil)) {
			if err != nil {
				return nil, err
			}
			seq, err := rows.ParseSeq(row.Key[strings.LastIndex(row.Key, "_")+1:])
			if err != nil {
				return nil, fmt.Errorf("lane: row %q: %w", row.Key, err)
			}
			list = append(list, &copiedMessage{id: weir.ID{Epoch: r.From.Epoch, Lane: lane, Seq: seq}, index: row})
		}
	}
	slices.SortFunc(list, func(a, b *copiedMessage) int { return strings.Compare(a.orderPos(), b.orderPos()) })
	return list, nil
}

// readMessages reads the rows of the messages, by pages if they are close together. A message that retention
// has removed meanwhile stays empty.
func (r *EpochCopy) readMessages(ctx context.Context, lane int, chunk []*copiedMessage) error {
	low, high := chunk[0].id.Seq, chunk[0].id.Seq
	for _, m := range chunk {
		low, high = min(low, m.id.Seq), max(high, m.id.Seq)
	}
	if high-low < copyMaxSparseness*int64(len(chunk)) {
		return r.readPages(ctx, lane, chunk, rows.Messages(r.From.partitionOf(lane), low, high+1, nil))
	}
	return ForEach(len(chunk), func(i int) error {
		row, err := r.From.Table.Get(ctx, r.From.partitionOf(lane), rows.MessageKey(chunk[i].id.Seq))
		if storage.Is(err, storage.NotFound) {
			return nil
		}
		chunk[i].setRow(row)
		return err
	})
}

func (r *EpochCopy) readPages(ctx context.Context, lane int, chunk []*copiedMessage, q storage.Query) error {
	byKey := make(map[string]*copiedMessage, len(chunk))
	for _, m := range chunk {
		byKey[rows.MessageKey(m.id.Seq)] = m
	}
	for row, err := range rows.Scan(ctx, r.From.Table, q) {
		if err != nil {
			return err
		}
		if m := byKey[row.Key]; m != nil {
			m.setRow(row)
		}
	}
	return nil
}

func (m *copiedMessage) setRow(row storage.Row) {
	m.row = row
	m.id.Nonce = rows.Nonce.Of(row.Values)
}

// copyMessages writes messages into one new lane, as many with a transaction as fit.
func (r *EpochCopy) copyMessages(ctx context.Context, lane int, list []*copiedMessage) error {
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < len(list) && n < copyGroupSize {
			bytes += estimateSize(&Change{ops: []storage.Op{{Values: list[n].row.Values},
				{Values: list[n].index.Values}}})
			if n > 0 && bytes > maxGroupBytes {
				break
			}
			n++
		}
		if err := r.copyGroup(ctx, lane, list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// copyGroup repeats one transaction until it is known to be done. Before each repetition it leaves out the
// messages that are copied already.
func (r *EpochCopy) copyGroup(ctx context.Context, lane int, list []*copiedMessage) error {
	isRepeated := false
	return rows.Update(ctx, func() (bool, error) {
		c, err := r.To.ReadControl(ctx, lane)
		if err == nil && isRepeated {
			list, err = r.leaveOutCopied(ctx, lane, list)
		}
		isRepeated = true
		if err == nil && len(list) > 0 {
			_, err = r.To.Table.Transact(ctx, r.To.partitionOf(lane), r.copyOps(c, list))
		}
		return !isUncertain(err) && !storage.Is(err, storage.Conflict), err
	}, r.To.pauseAfterConflict)
}

// leaveOutCopied returns the messages that have no copy yet.
func (r *EpochCopy) leaveOutCopied(ctx context.Context, lane int, list []*copiedMessage) ([]*copiedMessage, error) {
	there := make([]bool, len(list))
	err := ForEach(len(list), func(i int) error {
		_, err := r.To.Table.Get(ctx, r.To.partitionOf(lane), rows.CopyPrefix+copyID(list[i].id))
		there[i] = err == nil
		if storage.Is(err, storage.NotFound) {
			return nil
		}
		return err
	})
	var rest []*copiedMessage
	for i, m := range list {
		if !there[i] {
			rest = append(rest, m)
		}
	}
	return rest, err
}

// copyOps returns the transaction: both control rows, then the rows of each message. Dead messages are counted
// at once. The first holder finds scheduled ones when it reads the log.
func (r *EpochCopy) copyOps(c Control, list []*copiedMessage) []storage.Op {
	dead := c.Tail.Counts.Dead
	ops := make([]storage.Op, 2, 2+3*len(list))
	for i, m := range list {
		seq := c.Head.Next + int64(i)
		index := rows.DeadPrefix
		if strings.HasPrefix(m.index.Key, rows.DeadPrefix) {
			dead++
		} else {
			index = m.index.Key[:strings.LastIndex(m.index.Key, "_")+1]
		}
		ops = append(ops,
			storage.Op{Kind: storage.Insert, Key: rows.MessageKey(seq), Values: m.copyValues()},
			storage.Op{Kind: storage.Insert, Key: index + rows.SeqPos(seq), Values: m.indexValues(seq)},
			storage.Op{Kind: storage.Insert, Key: rows.CopyPrefix + copyID(m.id),
				Values: rows.Values(rows.Seq.Is(seq))})
	}
	ops[0] = headOp(c.Head, rows.Values(rows.NextSeq.Is(c.Head.Next+int64(len(list)))))
	ops[1] = storage.Op{Kind: storage.Merge, Key: rows.TailKey, IfMatch: c.Tail.ETag,
		Values: rows.Values(rows.Dead.Is(dead))}
	return ops
}

// copyValues returns the columns of the copy: those of the message, its first id and its old position. Its
// idempotency row stays in the old lane, where a repeat looks it up.
func (m *copiedMessage) copyValues() map[string]any {
	v := maps.Clone(m.row.Values)
	rows.Remove(v, rows.IdempotencyRow)
	rows.Remove(v, rows.IsHeld)
	rows.Remove(v, rows.OrderPos)
	if m.blockedBy != "" {
		rows.Put(v, rows.ReplayBlockedBy.Is(m.blockedBy))
	}
	rows.Put(v, rows.CopiedFrom.Is(copyID(m.id)))
	if !rows.Has(v, rows.Origin) {
		rows.Put(v, rows.Origin.Is(m.id.String()))
	}
	return v
}

func (m *copiedMessage) indexValues(seq int64) map[string]any {
	v := maps.Clone(m.index.Values)
	rows.Remove(v, rows.OrderPos)
	if rows.Has(v, rows.Seq) {
		rows.Put(v, rows.Seq.Is(seq))
	}
	return v
}
