package storagetest_test

import (
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

// Each test checks that the wrapper of a port passes the port's test suite if no fault is set.

type clock struct {
	mu  sync.Mutex
	now time.Time
}

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

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func TestFaults_Table(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(*testing.T) storage.Table {
		return storagetest.NewFaults().Table(memory.New(time.Now).Table())
	})
}

func TestFaults_Queue(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Queue(t, storagetest.QueueHarness{
		Open: func(*testing.T) storagetest.QueuePort {
			return storagetest.NewFaults().Queue(memory.New(c.Now).Queue("q")).(storagetest.QueuePort)
		},
		Advance: c.Advance,
	})
}

func TestFaults_Blobs(t *testing.T) {
	t.Parallel()
	storagetest.Blobs(t, func(*testing.T) storagetest.BlobPort {
		return storagetest.NewFaults().Blobs(memory.New(time.Now).Blobs())
	})
}

func TestFaults_Files(t *testing.T) {
	t.Parallel()
	storagetest.Files(t, func(*testing.T) storage.Files {
		return storagetest.NewFaults().Files(memory.New(time.Now).Files("inbox"))
	})
}

func TestFaults_Leases(t *testing.T) {
	t.Parallel()
	c := newClock()
	storagetest.Leases(t, storagetest.LeaseHarness{
		Open: func(*testing.T) storage.Leases {
			return storagetest.NewFaults().Leases(memory.New(c.Now).Leases())
		},
		Advance: c.Advance,
	})
}
