package app

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/lane"
	"weir/internal/storage"
)

// watchedTable calls the function "lost" when a request finds that the table was removed. The
// process must then end, because it has fences and sequence numbers of the removed table in memory.
// These numbers would be wrong in a new table.
type watchedTable struct {
	storage.Table
	lost func(error)
}

func (t watchedTable) reportLoss(err error) {
	if errors.Is(err, storage.ErrGone) {
		t.lost(fmt.Errorf("%w: the process ends, to begin anew with an empty table: %w",
			lane.ErrReplaced, err))
	}
}

// Get implements storage.Table.
func (t watchedTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	row, err := t.Table.Get(ctx, partition, key)
	t.reportLoss(err)
	return row, err
}

// Range implements storage.Table.
func (t watchedTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := t.Table.Range(ctx, q)
	t.reportLoss(err)
	return page, err
}

// Transact implements storage.Table.
func (t watchedTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	etags, err := t.Table.Transact(ctx, partition, ops)
	t.reportLoss(err)
	return etags, err
}
