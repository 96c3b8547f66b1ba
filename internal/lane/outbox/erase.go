package outbox

import (
	"context"
	"slices"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// RemoveEventsOf removes the unsent events about the message with the sequence number seq. The
// caller can repeat the call after any error.
func (o Outbox) RemoveEventsOf(ctx context.Context, seq int64) error {
	var keys []string
	q := rows.WithPrefix(o.Partition, rows.EventPrefix, rows.Names(rows.Seq))
	for r, err := range rows.Scan(ctx, o.Table, q) {
		if err != nil {
			return err
		}
		if rows.Seq.Of(r.Values) == seq {
			keys = append(keys, r.Key)
		}
	}

	for chunk := range slices.Chunk(keys, storage.MaxOps) {
		ops := make([]storage.Op, len(chunk))
		for i, key := range chunk {
			ops[i] = storage.Op{Kind: storage.Delete, Key: key}
		}

		if _, err := o.Table.Transact(ctx, o.Partition, ops); err != nil &&
			!storage.Is(err, storage.NotFound) {
			return err
		} else if err != nil { // a sender has moved or removed one of the rows
			return o.RemoveEventsOf(ctx, seq)
		}
	}

	return nil
}
