package storagetest

import (
	"context"
	"testing"

	"weir/internal/storage"
)

// LeaseBlobPort has the calls for the blobs of leases; see upkeep.LeaseBlobs.
type LeaseBlobPort interface {
	List(ctx context.Context, prefix, marker string) (storage.BlobPage, error)
	Delete(ctx context.Context, name string) error
}

// leaseAccount has the leases of an account, and their blobs.
type leaseAccount struct {
	storage.Leases
	blobs LeaseBlobPort
}

// LeaseBlobs is the suite for the blobs of leases, which upkeep lists and removes.
func LeaseBlobs(t *testing.T, open func(t *testing.T) (storage.Leases, LeaseBlobPort)) {
	t.Helper()
	runEach(t, func(t *testing.T) leaseAccount {
		leases, blobs := open(t)
		return leaseAccount{leases, blobs}
	}, map[string]func(*testing.T, leaseAccount){
		"List":              listLeases,
		"Delete/Held":       deleteHeldLease,
		"Delete/Released":   deleteReleasedLease,
		"Delete/NeverTaken": deleteMissingLease,
	})
}

// listLeases tests that each lease has a blob, and that no call for the lease changes the blob's
// time.
func listLeases(t *testing.T, a leaseAccount) {
	ctx := t.Context()
	for _, name := range []string{"replay-1", "batch-2", "lane-1.0", "batch-1"} {
		requireNoError(t, a.Acquire(ctx, name, ours, shortest))
	}

	page, err := a.blobs.List(ctx, "batch-", "")
	requireNoError(t, err)
	wantNames(t, "leases of batches", page.Infos, "batch-1", "batch-2")
	if page.Next != "" {
		t.Errorf("got the marker %q, want no further page", page.Next)
	}

	before := page.Infos[0].ModifiedAt
	if before.IsZero() {
		t.Error("got no time of the blob, want one")
	}

	requireNoError(t, a.Renew(ctx, "batch-1", ours))
	requireNoError(t, a.Release(ctx, "batch-1", ours))
	requireNoError(t, a.Acquire(ctx, "batch-1", theirs, shortest))
	page, err = a.blobs.List(ctx, "batch-1", "")
	requireNoError(t, err)
	if got := page.Infos[0].ModifiedAt; !got.Equal(before) {
		t.Errorf("after another holder: got the time %s, want %s as before", got, before)
	}
}

func deleteHeldLease(t *testing.T, a leaseAccount) {
	ctx := t.Context()
	requireNoError(t, a.Acquire(ctx, "batch-1", ours, shortest))
	wantKind(t, "delete a held lease", a.blobs.Delete(ctx, "batch-1"), storage.Conflict)
	requireNoError(t, a.Renew(ctx, "batch-1", ours))
}

func deleteReleasedLease(t *testing.T, a leaseAccount) {
	ctx := t.Context()
	requireNoError(t, a.Acquire(ctx, "batch-1", ours, shortest))
	requireNoError(t, a.Release(ctx, "batch-1", ours))
	requireNoError(t, a.blobs.Delete(ctx, "batch-1"))
	page, err := a.blobs.List(ctx, "", "")
	requireNoError(t, err)
	wantNames(t, "leases after the removal", page.Infos)
	wantKind(t, "renew a removed lease", a.Renew(ctx, "batch-1", ours), storage.Conflict)
	requireNoError(t, a.Acquire(ctx, "batch-1", theirs, shortest)) // creates the blob again
	wantKind(t, "delete a held lease", a.blobs.Delete(ctx, "batch-1"), storage.Conflict)
}

func deleteMissingLease(t *testing.T, a leaseAccount) {
	wantKind(t, "delete", a.blobs.Delete(t.Context(), "batch-1"), storage.NotFound)
}
