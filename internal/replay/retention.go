package replay

import (
	"context"
	"time"

	"weir/internal/job"
	"weir/internal/storage"
	"weir/internal/upkeep"
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
	return upkeep.RemoveRows(ctx, e.Table, storage.Query{Partition: finalPartition,
		From: job.IDPrefix(e.Now().Add(-retention))})
}
