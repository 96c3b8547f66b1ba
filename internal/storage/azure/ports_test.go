package azure_test

import (
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

const otherID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"

func TestLeases_OneHolder(t *testing.T) {
	t.Parallel()
	l := onAzurite(t, azure.Config{}).Leases()
	ctx := t.Context()
	must(t, l.Acquire(ctx, "lane/1", leaseID, 15*time.Second))
	must(t, l.Acquire(ctx, "lane/1", leaseID, 15*time.Second))
	for name, err := range map[string]error{
		"acquire": l.Acquire(ctx, "lane/1", otherID, 15*time.Second),
		"renew":   l.Renew(ctx, "lane/1", otherID),
		"release": l.Release(ctx, "lane/1", otherID),
	} {
		if !storage.Is(err, storage.Conflict) {
			t.Errorf("%s by another: %v", name, err)
		}
	}
	must(t, l.Renew(ctx, "lane/1", leaseID))
	must(t, l.Release(ctx, "lane/1", leaseID))
	if err := l.Renew(ctx, "lane/1", leaseID); !storage.Is(err, storage.Conflict) {
		t.Errorf("renew after release: %v", err)
	}
	must(t, l.Acquire(ctx, "lane/1", otherID, 15*time.Second))
}

func TestQueue_InOtherHands(t *testing.T) {
	t.Parallel()
	q := onAzurite(t, azure.Config{}).Tickets()
	ctx := t.Context()
	must(t, q.Put(ctx, "lane 1", 0))
	got, err := q.Get(ctx, 32, time.Minute)
	must(t, err)
	old := got[0]
	receipt, err := q.Update(ctx, old, "lane 1 again", 0)
	must(t, err)
	if _, err := q.Update(ctx, old, "late", 0); !storage.Is(err, storage.NotFound) {
		t.Errorf("update with the old receipt: %v", err)
	}
	if err := q.Delete(ctx, old); !storage.Is(err, storage.NotFound) {
		t.Errorf("delete with the old receipt: %v", err)
	}
	held := old
	held.PopReceipt = receipt
	must(t, q.Delete(ctx, held))
	if err := q.Delete(ctx, held); !storage.Is(err, storage.NotFound) {
		t.Errorf("delete of what is gone: %v", err)
	}
}

func TestBlobs_Marks(t *testing.T) {
	t.Parallel()
	b := onAzurite(t, azure.Config{}).Bodies()
	ctx := t.Context()
	if err := b.Mark(ctx, "none"); !storage.Is(err, storage.NotFound) {
		t.Errorf("mark without blob: %v", err)
	}
	must(t, b.Put(ctx, "lane/1", nil))
	for range 2 {
		must(t, b.Mark(ctx, "lane/1"))
	}
	if found, err := b.List(ctx, "", ""); err != nil || len(found) != 1 || !found[0].Marked || found[0].ModifiedAt.IsZero() {
		t.Errorf("after mark: %+v, %v", found, err)
	}
	must(t, b.Put(ctx, "lane/1", nil))
	if found, err := b.List(ctx, "", ""); err != nil || len(found) != 1 || found[0].Marked {
		t.Errorf("after put: %+v, %v", found, err)
	}
}
