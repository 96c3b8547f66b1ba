package azure_test

import (
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/storagetest"
)

// waitReally sleeps, because a test cannot set the emulator's clock.
func waitReally(d time.Duration) { time.Sleep(d) }

func TestTable_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(t *testing.T) storage.Table { return onAzurite(t, azure.Config{}).Table() })
}

func TestPartitions_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Partitions(t, func(t *testing.T) (storage.Table, storage.Partitions) {
		account := onAzurite(t, azure.Config{})
		return account.Table(), account
	})
}

func TestQueue_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Queue(t, storagetest.QueueHarness{
		Open: func(t *testing.T) interface {
			storage.Queue
			storage.QueueLength
		} {
			return onAzurite(t, azure.Config{}).Tickets()
		},
		Advance: waitReally,
	})
}

func TestBlobs_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Blobs(t, func(t *testing.T) interface {
		storage.Blobs
		storage.BlobMarks
	} {
		return onAzurite(t, azure.Config{}).Bodies()
	})
}

func TestFiles_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Files(t, func(t *testing.T) storage.Files { return onAzurite(t, azure.Config{HasFiles: true}).Inbox() })
}

func TestLeases_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Leases(t, storagetest.LeaseHarness{
		Open:    func(t *testing.T) storage.Leases { return onAzurite(t, azure.Config{}).Leases() },
		Advance: waitReally,
	})
}

func TestLeaseBlobs_Suite(t *testing.T) {
	t.Parallel()
	storagetest.LeaseBlobs(t, func(t *testing.T) (storage.Leases, storagetest.LeaseBlobPort) {
		account := onAzurite(t, azure.Config{})
		return account.Leases(), account.LeaseBlobs()
	})
}
