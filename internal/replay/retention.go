package replay

import (
	"context"
	"time"

	"weir/internal/job"
	"weir/internal/storage"
)

// retention is the time from the start of a job to its removal, if the job is over.
const retention = 30 * 24 * time.Hour

// Expiry removes old rows of jobs that are over.
type Expiry struct {
	Table storage.Table
	Now   func() time.Time
}

// RemoveExpired removes the rows whose retention is over, until none is left or ctx ends. It
// reports whether none is left.
func (e Expiry) RemoveExpired(ctx context.Context) (isDone bool, err error) {
	q := storage.Query{Partition: finalPartition, From: job.IDPrefix(e.Now().Add(-retention)),
		Limit: storage.MaxOps, Columns: []string{"None"}}
	for {
		page, err := e.Table.Range(ctx, q)
		if err != nil {
			return false, err
		}
		if len(page.Rows) == 0 {
			return !page.More, nil
		}

		var ops []storage.Op
		for _, row := range page.Rows {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: row.Key})
		}

		_, err = e.Table.Transact(ctx, finalPartition, ops)

		// NotFound means that another process has deleted one of the rows; the next page has the
		// rest.
		if err != nil && !storage.Is(err, storage.NotFound) {
			return false, err
		}
	}
}
