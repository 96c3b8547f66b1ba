package azure_test

import (
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/storagetest"
)

// advance really waits: the emulator has no clock to turn. It is the one place here
// where a test sleeps.
func advance(d time.Duration) { time.Sleep(d) }

func TestTable_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Table(t, func(t *testing.T) storage.Table { return onAzurite(t, azure.Config{}).Table() })
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
		Advance: advance,
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

func TestLeases_Suite(t *testing.T) {
	t.Parallel()
	storagetest.Leases(t, storagetest.LeaseHarness{
		Open:    func(t *testing.T) storage.Leases { return onAzurite(t, azure.Config{}).Leases() },
		Advance: advance,
	})
}
