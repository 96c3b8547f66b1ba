package simulation_test

import (
	"context"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

// account is the storage of a world. Its calls take no virtual time.
type account interface {
	Table() storage.Table
	Blobs() storagetest.BlobPort
	Leases() leaseCalls
	Queue(name string) storagetest.QueuePort
}

// leaseCalls has all calls for leases.
type leaseCalls interface {
	storage.Leases
	storagetest.LeaseBlobPort
}

// memoryAccount is a storage account in memory.
type memoryAccount struct{ *memory.Account }

// Table implements account.
func (a memoryAccount) Table() storage.Table { return a.Account.Table() }

// Blobs implements account.
func (a memoryAccount) Blobs() storagetest.BlobPort { return a.Account.Blobs() }

// Leases implements account.
func (a memoryAccount) Leases() leaseCalls { return a.Account.Leases() }

// Queue implements account.
func (a memoryAccount) Queue(name string) storagetest.QueuePort { return a.Account.Queue(name) }

// folderAccount is a store in a folder. Its file is not synced, because a world does not outlive
// the process.
type folderAccount struct{ store *embedded.Store }

// openAccount returns the storage of a world, and a function that closes it.
func openAccount(t *testing.T, s settings) (account, func()) {
	if !s.isInFolder {
		return memoryAccount{memory.New(time.Now)}, func() {}
	}

	store, err := embedded.Open(t.TempDir(), embedded.Options{Now: time.Now, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}

	return folderAccount{store}, func() {
		if r, err := store.Check(context.Background()); err != nil || len(r.Problems) > 0 {
			t.Errorf("got %+v, %v of the store, want no problems", r, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Table implements account.
func (a folderAccount) Table() storage.Table { return a.store.Table() }

// Blobs implements account.
func (a folderAccount) Blobs() storagetest.BlobPort { return a.store.Bodies() }

// Leases implements account.
func (a folderAccount) Leases() leaseCalls { return a.store.LeaseBlobs() }

// Queue implements account.
func (a folderAccount) Queue(name string) storagetest.QueuePort {
	if name == "poison" {
		return a.store.Poison()
	}

	return a.store.Tickets()
}

// TestInFolder runs usual worlds over the embedded store. The variable IN_FOLDER is the number of
// seeds; see runWorlds.
func TestInFolder(t *testing.T) {
	t.Parallel()
	sum := runWorlds(t, "IN_FOLDER", 12, func(d *dice) settings {
		s := drawSettings(d)
		s.isInFolder = true
		return s
	})
	if sum.Delivered == 0 {
		t.Errorf("got no delivery, want some: %+v", sum)
	}
}
