package epochend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Copy copies scheduled messages, dead messages, the latest delivered versions and the remembered
// ids from closed lanes into the lanes of the next epoch. No other process writes to the new lanes
// before the next epoch opens. The copy can be repeated at any point: the transaction that copies a
// message also writes a row with CopyPrefix (o_), which shows that the message is copied. Every
// transaction is conditional on the new lane's head, so a late transaction does nothing.
type Copy struct {
	From, To *lane.Store
}

const (
	// copyReadSize is the number of messages that CopyLane reads, and then writes, at a time.
	copyReadSize = 256
	// copyMaxSparseness is the largest number of rows that readMessages reads for each row that it
	// needs.
	copyMaxSparseness = 4
	// copyGroupSize is the number of messages that one transaction can copy. The transaction has
	// two control rows, and three rows for each message.
	copyGroupSize = (storage.MaxOps - 2) / 3
)

// Prepare creates the control rows of the new lanes. Their fences start at the highest fence of the
// old lanes, so that the CMS never receives a lower fence for a key.
func (r *Copy) Prepare(ctx context.Context) error {
	fences := make([]int64, r.From.Lanes)
	err := lane.ForEach(r.From.Lanes, func(number int) error {
		c, err := r.From.ReadControl(ctx, number)
		fences[number] = c.Tail.Fence
		return err
	})
	if err != nil {
		return err
	}

	fence := slices.Max(fences)

	return lane.ForEach(r.To.Lanes,
		func(number int) error { return r.To.EnsureControlRows(ctx, number, fence) })
}

// CopyLane copies one old lane. The messages of each key keep their order.
func (r *Copy) CopyLane(ctx context.Context, number int) error {
	if err := r.copyKeyRows(ctx, number, rows.VersionPrefix); err != nil {
		return fmt.Errorf("delivered versions: %w", err)
	}

	if err := r.copyKeyRows(ctx, number, rows.RememberedPrefix); err != nil {
		return fmt.Errorf("remembered ids: %w", err)
	}

	list, err := r.listMessages(ctx, number)
	if err != nil {
		return err
	}

	blocks, err := r.From.DeliveryState().ReadReplayBlocks(ctx, number)
	if err != nil {
		return err
	}

	for chunk := range slices.Chunk(list, copyReadSize) {
		if err := r.readMessages(ctx, number, chunk); err != nil {
			return err
		}

		if err := recordReplayBlocks(blocks, chunk); err != nil {
			return err
		}

		byLane := map[int][]*copiedMessage{}
		for _, m := range chunk {
			if m.row.Key != "" {
				to := lane.OfRow(m.row.Values, r.To.Present())
				byLane[to] = append(byLane[to], m)
			}
		}

		targets := slices.Sorted(maps.Keys(byLane))
		err := lane.ForEach(len(targets), func(i int) error {
			return r.copyMessages(ctx, targets[i], byLane[targets[i]])
		})
		if err != nil {
			return err
		}

		clear(chunk) // frees the bodies
	}

	return nil
}

type copiedMessage struct {
	id        weir.ID     // id in the old epoch
	index     storage.Row // the row that lists the message as dead or as scheduled
	row       storage.Row // the row with the message (m_); an empty key = the row is gone
	blockedBy string      // why the dead message must not be replayed; "" = a replay is allowed
}

// listMessages reads the index rows of the dead and the scheduled messages, sorted by orderPos.
func (r *Copy) listMessages(ctx context.Context, number int) ([]*copiedMessage, error) {
	var list []*copiedMessage
	for _, prefix := range []string{rows.DeadPrefix, rows.DuePrefix} {
		for row, err := range rows.Scan(ctx, r.From.Table,
			rows.WithPrefix(r.From.Partition(number), prefix, nil)) {
			if err != nil {
				return nil, err
			}

			seq, err := rows.ParseSeq(row.Key[strings.LastIndex(row.Key, "_")+1:])
			if err != nil {
				return nil, fmt.Errorf("epochend: row %q: %w", row.Key, err)
			}

			list = append(list,
				&copiedMessage{id: weir.ID{Epoch: r.From.Epoch, Lane: number, Seq: seq},
					index: row})
		}
	}

	slices.SortFunc(list, func(a, b *copiedMessage) int { return strings.Compare(a.orderPos(), b.orderPos()) })
	return list, nil
}

// readMessages reads the rows of the messages, by pages if the rows are close together. If
// retention has removed a message, its field row stays empty.
func (r *Copy) readMessages(ctx context.Context, number int, chunk []*copiedMessage) error {
	low, high := chunk[0].id.Seq, chunk[0].id.Seq
	for _, m := range chunk {
		low, high = min(low, m.id.Seq), max(high, m.id.Seq)
	}

	if high-low < copyMaxSparseness*int64(len(chunk)) {
		return r.readPages(ctx, number, chunk,
			rows.Messages(r.From.Partition(number), low, high+1, nil))
	}

	return lane.ForEach(len(chunk), func(i int) error {
		row, err := r.From.Table.Get(ctx, r.From.Partition(number),
			rows.MessageKey(chunk[i].id.Seq))
		if storage.Is(err, storage.NotFound) {
			return nil
		}

		chunk[i].setRow(row)
		return err
	})
}

func (r *Copy) readPages(ctx context.Context, number int, chunk []*copiedMessage,
	q storage.Query) error {
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

// copyMessages writes messages into one new lane, as many in each transaction as fit.
func (r *Copy) copyMessages(ctx context.Context, number int, list []*copiedMessage) error {
	for len(list) > 0 {
		n, bytes := 0, 0
		for n < len(list) && n < copyGroupSize {
			bytes += rows.EstimateSize(list[n].row.Values) + rows.EstimateSize(list[n].index.Values)
			if n > 0 && bytes > rows.MaxGroupBytes {
				break
			}
			n++
		}

		if err := r.copyGroup(ctx, number, list[:n]); err != nil {
			return err
		}

		list = list[n:]
	}

	return nil
}

// copyGroup writes messages in one transaction, and repeats the transaction until it is known to be
// done. Before a repetition it leaves out the messages that are copied already.
func (r *Copy) copyGroup(ctx context.Context, number int, list []*copiedMessage) error {
	isRepeated := false
	return rows.Update(ctx, func() (bool, error) {
		c, err := r.To.ReadControl(ctx, number)
		if err == nil && isRepeated {
			list, err = r.leaveOutCopied(ctx, number, list)
		}

		isRepeated = true
		if err == nil && len(list) > 0 {
			_, err = r.To.Table.Transact(ctx, r.To.Partition(number), r.copyOps(c, list))
		}

		return !rows.IsUncertain(err) && !storage.Is(err, storage.Conflict), err
	}, r.To.PauseAfterConflict)
}

func (r *Copy) leaveOutCopied(ctx context.Context, number int,
	list []*copiedMessage) ([]*copiedMessage, error) {
	there := make([]bool, len(list))
	err := lane.ForEach(len(list), func(i int) error {
		_, err := r.To.Table.Get(ctx, r.To.Partition(number),
			rows.CopyPrefix+lane.CopyID(list[i].id))
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

// copyOps returns the operations of a transaction: both control rows, then the rows of each
// message. It counts dead messages in the new tail, but not scheduled messages: the lane's first
// holder finds and counts them when it reads the log.
func (r *Copy) copyOps(c lane.Control, list []*copiedMessage) []storage.Op {
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
			storage.Op{Kind: storage.Insert, Key: index + rows.SeqPos(seq),
				Values: r.indexValues(m, seq)},
			storage.Op{Kind: storage.Insert, Key: rows.CopyPrefix + lane.CopyID(m.id),
				Values: rows.Values(rows.Seq.Is(seq))})
	}

	ops[0] = c.Head.UpdateOp(rows.NextSeq.Is(c.Head.Next + int64(len(list))))
	ops[1] = c.Tail.UpdateOp(rows.Dead.Is(dead))

	return ops
}

// copyValues returns the columns of the copy: those of the message, its first id and its old
// position. The message's idempotency row stays in the old lane, where a repeated post finds that
// row. The copy has the key of the idempotency row in the column MovedIdempotencyRow instead of
// IdempotencyRow.
func (m *copiedMessage) copyValues() map[string]any {
	v := maps.Clone(m.row.Values)
	if key := rows.IdempotencyRow.Of(v); key != "" {
		rows.Put(v, rows.MovedIdempotencyRow.Is(key))
	}

	rows.Remove(v, rows.IdempotencyRow)
	rows.Remove(v, rows.IsHeld)
	rows.Remove(v, rows.OrderPos)
	if m.blockedBy != "" {
		rows.Put(v, rows.ReplayBlockedBy.Is(m.blockedBy))
	}

	rows.Put(v, rows.CopiedFrom.Is(lane.CopyID(m.id)))
	if !rows.Has(v, rows.Origin) {
		rows.Put(v, rows.Origin.Is(m.id.String()))
	}

	return v
}

// indexValues returns the columns of the row that lists the copy. In a row of a scheduled message
// the hash of the key is that of the new epoch, which can fold keys in another way.
func (r *Copy) indexValues(m *copiedMessage, seq int64) map[string]any {
	v := maps.Clone(m.index.Values)
	rows.Remove(v, rows.OrderPos)
	if strings.HasPrefix(m.index.Key, rows.DuePrefix) {
		rows.Put(v, rows.Key.Is(r.To.KeyHash(rows.Key.Of(m.row.Values))))
	}

	if rows.Has(v, rows.Seq) {
		rows.Put(v, rows.Seq.Is(seq))
	}
	return v
}

// recordReplayBlocks records for each dead message in a list whether its replay is forbidden. This
// cannot be decided later, because a copy's new position cannot be compared with deliveries in the
// old lane.
func recordReplayBlocks(blocks lane.ReplayBlocks, list []*copiedMessage) (err error) {
	for _, m := range list {
		if m.row.Key == "" || !strings.HasPrefix(m.index.Key, rows.DeadPrefix) {
			continue
		}
		if m.blockedBy, err = blocks.BlockedBy(m.row); err != nil {
			return err
		}
	}

	return nil
}

// orderPos returns the message's position in the order of its key.
func (m *copiedMessage) orderPos() string {
	if pos := rows.OrderPos.Of(m.index.Values); pos != "" {
		return pos
	}
	return rows.SeqPos(m.id.Seq)
}
