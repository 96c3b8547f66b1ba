package storagetest

import (
	"context"
	"time"

	"weir/internal/storage"
)

// patientPause is the time between two tries of a read.
const patientPause = 10 * time.Millisecond

// Patient returns the table with reads that are repeated while storage is unavailable, until their
// context ends. The emulator on a busy machine may need longer for a read than package timelimit
// allows, and a slow machine is no failure of the test.
func Patient(inner storage.Table) storage.Table { return patientTable{inner} }

type patientTable struct{ storage.Table }

func (p patientTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	return repeatRead(ctx, func() (storage.Row, error) { return p.Table.Get(ctx, partition, key) })
}

func (p patientTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	return repeatRead(ctx, func() (storage.Page, error) { return p.Table.Range(ctx, q) })
}

// repeatRead reads until storage answers or ctx ends.
func repeatRead[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for {
		got, err := read()
		if !storage.Is(err, storage.Unavailable) || ctx.Err() != nil {
			return got, err
		}

		select {
		case <-time.After(patientPause):
		case <-ctx.Done():
			return got, err
		}
	}
}
