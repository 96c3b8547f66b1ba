package app

import (
	"context"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/timelimit"
)

// account is the storage of one installation. All its parts are on the same server.
type account interface {
	// Table returns the table of the lanes.
	Table() storage.Table
	// Bodies returns the container of large bodies and of batches.
	Bodies() timelimit.BlobPort
	// Leases returns the leases of lanes and all other leases.
	Leases() storage.Leases
	// LeaseBlobs returns the blobs of the leases.
	LeaseBlobs() timelimit.BlobPort
	// Tickets, Poison and InboxEvents return the queues of the functions "process", "poison" and
	// "inbox".
	Tickets() timelimit.QueuePort
	Poison() timelimit.QueuePort
	InboxEvents() timelimit.QueuePort
	// Inbox, Accepted and Rejected return the files of the inbox and of its archive.
	Inbox() storage.Files
	Accepted() storage.Files
	Rejected() storage.Files
	// Ensure creates the table, queues and containers that do not exist.
	Ensure(ctx context.Context) error
	// Skew returns the time by which the clock of storage is ahead of this machine's clock.
	Skew(ctx context.Context) (time.Duration, error)
	// Close ends the use of storage.
	Close()
}

var _ account = (*azure.Account)(nil)
