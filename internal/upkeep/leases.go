package upkeep

import (
	"context"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/listing"
)

// LeaseBlobs lists and removes the blobs of leases. Delete returns an error for a blob whose lease
// is held.
type LeaseBlobs interface {
	List(ctx context.Context, prefix, marker string) (storage.BlobPage, error)
	Delete(ctx context.Context, name string) error
}

// leasePrefixes are the beginnings of the names of leases that are used for one batch or one bulk
// replay only. All other leases are used again and again.
var leasePrefixes = []string{"batch-", "replay-"}

// minLeaseAge is longer than most batches and bulk replays take. A process may still use a younger
// blob.
const minLeaseAge = day

// UnusedLeases removes the blobs of leases that no process will use again. A lease without a blob
// has no holder: if a process needs the lease after all, it creates the blob again.
func UnusedLeases(blobs LeaseBlobs, now func() time.Time) Job {
	j := leaseJob{blobs, now}
	return Job{Name: "unused-leases", Every: day, Limit: stepLimit, Run: Walk(j.remove).run}
}

type leaseJob struct {
	blobs LeaseBlobs
	now   func() time.Time
}

func (j leaseJob) remove(ctx context.Context, marker string) (string, bool, error) {
	return listing.Walk(leasePrefixes, marker, func(prefix, at string) (string, error) {
		page, err := j.blobs.List(ctx, prefix, at)
		if err != nil {
			return "", err
		}
		return page.Next, j.removePage(ctx, page)
	})
}

// removePage removes the old blobs of a page. A refusal means that a process holds the lease.
func (j leaseJob) removePage(ctx context.Context, page storage.BlobPage) error {
	before := j.now().Add(-minLeaseAge)
	for _, blob := range page.Infos {
		if !blob.ModifiedAt.Before(before) {
			continue
		}

		err := j.blobs.Delete(ctx, blob.Name)
		switch storage.KindOf(err) {
		case storage.Throttled, storage.Unavailable, storage.Ambiguous:
			return err
		}
	}

	return nil
}
