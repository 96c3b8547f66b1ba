package main

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/lane"
	"weir/internal/storage"
)

// watchedTable ends the process when the table is gone. All messages were in it, and the lanes,
// fences and numbers in this process's memory belong to it: in a new table they would be wrong.
// The host starts another process, which begins anew.
type watchedTable struct {
	storage.Table
	gone func(error)
}

func (t watchedTable) look(err error) {
	if errors.Is(err, storage.ErrGone) {
		t.gone(err)
	}
}

// Get implements storage.Table.
func (t watchedTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	row, err := t.Table.Get(ctx, partition, key)
	t.look(err)
	return row, err
}

// Range implements storage.Table.
func (t watchedTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := t.Table.Range(ctx, q)
	t.look(err)
	return page, err
}

// Transact implements storage.Table.
func (t watchedTable) Transact(ctx context.Context, partition string, ops []storage.Op) ([]storage.ETag, error) {
	etags, err := t.Table.Transact(ctx, partition, ops)
	t.look(err)
	return etags, err
}

// endWithoutTable ends the process because the table is gone.
func (p *Program) endWithoutTable(err error) {
	p.end(fmt.Errorf("%w: the process ends, to begin anew with an empty table: %w", lane.ErrBegunAnew, err))
}
