package memory_test

import (
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
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

func TestTable_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(*testing.T) storage.Table { return memory.New(newClock().Now).Table() })
}

func TestPartitions_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Partitions(t, func(*testing.T) (storage.Table, storage.Partitions) {
		account := memory.New(newClock().Now)
		return account.Table(), account
	})
}

func TestQueue_Conformance(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Queue(t, storagetest.QueueHarness{
		Open: func(*testing.T) storagetest.QueuePort {
			return memory.New(c.Now).Queue("tickets")
		},
		Advance: c.Advance,
	})
}

func TestBlobs_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Blobs(t, func(*testing.T) storagetest.BlobPort { return memory.New(newClock().Now).Blobs() })
}

func TestFiles_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.Files(t, func(*testing.T) storage.Files { return memory.New(newClock().Now).Files("inbox") })
}

func TestLeases_Conformance(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Leases(t, storagetest.LeaseHarness{
		Open:    func(*testing.T) storage.Leases { return memory.New(c.Now).Leases() },
		Advance: c.Advance,
	})
}

func TestLeaseBlobs_Conformance(t *testing.T) {
	t.Parallel()
	storagetest.LeaseBlobs(t, func(*testing.T) (storage.Leases, storagetest.LeaseBlobPort) {
		leases := memory.New(newClock().Now).Leases()
		return leases, leases
	})
}
