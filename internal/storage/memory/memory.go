// Package memory implements the ports of package storage in memory, with the semantics of Azure
// Storage. The package is for tests and for simulations under virtual time; package embedded takes
// its leases from it. It has no goroutines and no timers: each call reads the account's clock to
// find out which leases have expired and which queue messages are visible.
package memory

import (
	"context"
	"sync"
	"time"

	"weir/internal/storage"
)

// Account is one storage account. Its ports may be used concurrently.
type Account struct {
	now    func() time.Time
	table  *Table
	blobs  *Blobs
	leases *Leases

	mu     sync.Mutex
	queues map[string]*Queue
	files  map[string]*Files
}

// New returns an empty account. The function now is the account's clock.
func New(now func() time.Time) *Account {
	return &Account{
		now: now, table: &Table{now: now, partitions: map[string]*partition{}},
		blobs:  &Blobs{now: now, blobs: map[string]*blob{}},
		leases: &Leases{now: now, leases: map[string]*lease{}}, queues: map[string]*Queue{},
		files: map[string]*Files{},
	}
}

// Table returns the account's table.
func (a *Account) Table() *Table { return a.table }

// Partitions implements storage.Partitions.
func (a *Account) Partitions(ctx context.Context, visit func(name string) error) error {
	if err := ctx.Err(); err != nil {
		return newError("table partitions", storage.Unavailable, err)
	}

	for _, name := range a.table.Partitions() {
		if err := visit(name); err != nil {
			return err
		}
	}

	return nil
}

// Blobs returns the account's blobs.
func (a *Account) Blobs() *Blobs { return a.blobs }

// Leases returns the account's leases.
func (a *Account) Leases() *Leases { return a.leases }

// Queue returns the queue with this name. The first call for a name creates the queue.
func (a *Account) Queue(name string) *Queue {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queues[name]
	if q == nil {
		q = &Queue{now: a.now}
		a.queues[name] = q
	}

	return q
}

// Files returns the files of a container. The first call for a container creates the container.
func (a *Account) Files(container string) *Files {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.files[container]
	if f == nil {
		f = &Files{now: a.now, files: map[string]*file{}}
		a.files[container] = f
	}

	return f
}
