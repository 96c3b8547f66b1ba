// Package memory keeps the storage ports in memory, with the semantics of Azure Storage,
// for tests and simulation under virtual time. It has no goroutines and no timers: what
// expires is computed from the clock it was given.
package memory

import (
	"sync"
	"time"
)

// Account is one storage account. Its ports may be used concurrently.
type Account struct {
	now    func() time.Time
	table  *Table
	blobs  *Blobs
	leases *Leases

	mu     sync.Mutex
	queues map[string]*Queue
}

// New makes an empty account that lives by the clock given.
func New(now func() time.Time) *Account {
	return &Account{
		now: now, table: &Table{partitions: map[string]*partition{}}, blobs: &Blobs{now: now, blobs: map[string]*blob{}},
		leases: &Leases{now: now, leases: map[string]*lease{}}, queues: map[string]*Queue{},
	}
}

// Table gives the account's table.
func (a *Account) Table() *Table { return a.table }

// Blobs gives the account's blobs.
func (a *Account) Blobs() *Blobs { return a.blobs }

// Leases gives the account's leases.
func (a *Account) Leases() *Leases { return a.leases }

// Queue gives the queue of this name, made on first use.
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
