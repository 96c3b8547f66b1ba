package lane

import (
	"context"
	"fmt"
	"slices"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// The record of a key's last delivery (l_) forbids to replay an earlier message of the key. It is
// of no use any more if every message before the delivered one is final and not dead: such a
// message never waits again. Retention removes such records, so a lane that lives for ever with
// ever new keys has only those that are as young as its oldest dead or held message.

const (
	// deliveryPages is the number of pages of records that one run reads. If there are more, each
	// run begins at another record.
	deliveryPages = 10
	// heldPages is the number of pages of held messages that one run reads. If there are more, it
	// removes no record.
	heldPages = 10
)

// removeLastDeliveries removes the records that are of no use any more.
//
// It reads the records first, then the held messages, and the list of dead messages last. Meanwhile
// a message can only go from the log to the held ones, and from there to the dead ones, so none is
// missed. Only a replay leads back. So removeLastDeliveries removes nothing if a request waited at
// the beginning, or was made until the end.
func (t *retentionRun) removeLastDeliveries(ctx context.Context) error {
	before, err := t.Store.ReadControl(ctx, t.lane)
	if err != nil || before.HasRequests() {
		return err
	}

	records, err := t.readLastDeliveries(ctx)
	if err != nil || len(records) == 0 {
		return err
	}

	bound, err := t.lowestOpenPos(ctx, before)
	if err != nil {
		return err
	}

	after, err := t.Store.ReadControl(ctx, t.lane)
	if err != nil || after.Head.RequestSeq != before.Head.RequestSeq {
		return err
	}

	var ops []storage.Op
	for _, r := range records {
		if pos := rows.OrderPos.Of(r.Values); pos != "" && pos < bound {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: r.Key, IfMatch: r.ETag})
		}
	}

	for chunk := range slices.Chunk(ops, maxBatchOps) {
		if err := t.removeUnchanged(ctx, chunk); err != nil {
			return err
		}
	}

	return nil
}

// readLastDeliveries reads records, at most deliveryPages pages. It begins at a random one, and
// goes on from the first one behind the last one.
func (t *retentionRun) readLastDeliveries(ctx context.Context) ([]storage.Row, error) {
	first := rows.LastDeliveryPrefix + fmt.Sprintf("%02x", int(t.Store.drawPause(256)))
	behind := rows.WithPrefix(t.Store.Partition(t.lane), rows.LastDeliveryPrefix,
		rows.Names(rows.OrderPos))
	before := behind
	behind.From, before.To = first, first
	found, more, err := rows.ReadPages(ctx, t.Store.Table, behind, deliveryPages)
	if err != nil || more {
		return found, err
	}

	rest, _, err := rows.ReadPages(ctx, t.Store.Table, before, deliveryPages)

	return append(found, rest...), err
}

// lowestOpenPos returns a position: each message before it is final and not dead, or scheduled. A
// scheduled message gets a position behind all messages of its key that were sent. It returns "" if
// there are too many held messages, or if a row is damaged.
func (t *retentionRun) lowestOpenPos(ctx context.Context, c Control) (string, error) {
	lowest := rows.SeqPos(c.Tail.Cursor)
	partition := t.Store.Partition(t.lane)
	held, more, err := rows.ReadPages(ctx, t.Store.Table,
		rows.WithPrefix(partition, rows.HeldPrefix, rows.Names(rows.Seq)), heldPages)
	if err != nil || more {
		return "", err
	}

	for _, r := range held {
		h := HeldFrom(r)
		if checkHeld(h) != nil {
			return "", nil
		}
		lowest = min(lowest, h.OrderPos)
	}

	dead, err := rows.ReadFirst(ctx, t.Store.Table,
		rows.WithPrefix(partition, rows.DeadPrefix, rows.Names(rows.Key)), 1)
	if err != nil || len(dead) == 0 {
		return lowest, err
	}

	first, isWhole := t.Store.SeqOf(t.lane, rows.DeadPrefix, dead[0])
	if !isWhole {
		return "", nil
	}

	// the position of a dead message is not below that of its number
	return min(lowest, rows.SeqPos(first)), nil
}

// removeUnchanged removes rows with one transaction. If one of the rows was changed, all stay until
// a later run.
func (t *retentionRun) removeUnchanged(ctx context.Context, ops []storage.Op) error {
	_, err := t.Store.Table.Transact(ctx, t.Store.Partition(t.lane), ops)
	if err != nil && isUndecided(err) {
		return err
	}
	return nil
}
