package app

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/lane"
	"weir/internal/storage"
)

// watchedTable calls the function "lost" when a request to the table finds that the table was removed. The lanes,
// fences and sequence numbers in the memory of this process belong to the removed table, and would be wrong in a new
// table. So the process must end. The host starts another process, which begins with an empty table.
type watchedTable struct {
	storage.Table
	lost func(error)
}

func (t watchedTable) reportLoss(err error) {
	if errors.Is(err, storage.ErrGone) {
		t.lost(fmt.Errorf("%w: the process ends, to begin anew with an empty table: %w", lane.ErrReplaced, err))
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
func (t watchedTable) Transact(ctx context.Context, partition string, ops []storage.Op) ([]storage.ETag, error) {
	etags, err := t.Table.Transact(ctx, partition, ops)
	t.reportLoss(err)
	return etags, err
}
