package embedded_test

import (
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/storagetest"
)

// clock changes its time only in Advance.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// openStore opens a store in a folder of the test.
func openStore(t *testing.T, o embedded.Options) *embedded.Store {
	t.Helper()

	return openFolder(t, t.TempDir(), o)
}

func openFolder(t *testing.T, dir string, o embedded.Options) *embedded.Store {
	t.Helper()
	store, err := embedded.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})

	return store
}

func TestTable_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(t *testing.T) storage.Table {
		return openStore(t, embedded.Options{}).Table()
	})
}

func TestPartitions_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Partitions(t, func(t *testing.T) (storage.Table, storage.Partitions) {
		store := openStore(t, embedded.Options{})
		return store.Table(), store
	})
}

func TestQueue_Conformance(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Queue(t, storagetest.QueueHarness{
		Open: func(t *testing.T) storagetest.QueuePort {
			return openStore(t, embedded.Options{Now: c.Now}).Tickets()
		},
		Advance: c.Advance,
	})
}

func TestBlobs_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Blobs(t, func(t *testing.T) storagetest.BlobPort {
		return openStore(t, embedded.Options{}).Bodies()
	})
}

func TestFiles_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Files(t, func(t *testing.T) storage.Files {
		return openStore(t, embedded.Options{}).Inbox()
	})
}

func TestLeases_Conformance(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Leases(t, storagetest.LeaseHarness{
		Open: func(t *testing.T) storage.Leases {
			return openStore(t, embedded.Options{Now: c.Now}).Leases()
		},
		Advance: c.Advance,
	})
}

func TestLeaseBlobs_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.LeaseBlobs(t, func(t *testing.T) (storage.Leases, storagetest.LeaseBlobPort) {
		store := openStore(t, embedded.Options{})
		return store.Leases(), store.LeaseBlobs()
	})
}
