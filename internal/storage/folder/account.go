package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/timelimit"
)

// LeaseBlobs lists leases, and removes those that no holder has.
type LeaseBlobs interface {
	List(ctx context.Context, prefix, marker string) (storage.BlobPage, error)
	Delete(ctx context.Context, name string) error
}

// Account is the store of a folder: the process's own, or that of another process.
type Account interface {
	Table() storage.Table
	Tickets() timelimit.QueuePort
	Poison() timelimit.QueuePort
	InboxEvents() timelimit.QueuePort
	Bodies() timelimit.BlobPort
	Leases() storage.Leases
	LeaseBlobs() LeaseBlobs
	Inbox() storage.Files
	Accepted() storage.Files
	Rejected() storage.Files
	Ensure(ctx context.Context) error
	Skew(ctx context.Context) (time.Duration, error)

	storage.Partitions
	// Backup writes a copy of the store to w while others write to the store.
	Backup(ctx context.Context, w io.Writer) error
	// Check reads everything, and compares the checksums.
	Check(ctx context.Context) (embedded.Report, error)
	// Scrub overwrites the bytes of all that was removed.
	Scrub(ctx context.Context) error

	// Owner returns the process that has the folder. It is empty if this process has it.
	Owner() embedded.Owner
	// Close closes the store, or the connections to the process that has it.
	Close() error
}

// Own opens the store of a folder, and serves the socket. If another process has the folder, the
// error is an *embedded.InUseError.
func Own(dir string, o embedded.Options) (Account, error) {
	store, err := embedded.Open(dir, o)
	if err != nil {
		return nil, err
	}

	s, err := listen(store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the folder %s: %w", dir, err), store.Close())
	}

	return &owned{store, s}, nil
}

// Open does what Own does. If another process has the folder, Open connects to that process.
func Open(ctx context.Context, dir string, o embedded.Options) (Account, error) {
	account, err := Own(dir, o)
	var inUse *embedded.InUseError
	if err == nil || !errors.As(err, &inUse) {
		return account, err
	}

	c, failed := dial(ctx, dir, inUse.Owner)
	if failed != nil {
		return nil, fmt.Errorf("%w; it does not answer at its socket: %w", err, failed)
	}

	return c, nil
}

// owned is the store of this process.
type owned struct {
	*embedded.Store
	server *server
}

// LeaseBlobs implements Account.
func (o *owned) LeaseBlobs() LeaseBlobs { return o.Store.LeaseBlobs() }

// Owner implements Account.
func (o *owned) Owner() embedded.Owner { return embedded.Owner{} }

// Close implements Account. Calls of other processes end before the store closes.
func (o *owned) Close() error { return errors.Join(o.server.close(), o.Store.Close()) }
