package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/embedded"
	"weir/internal/storage/folder"
	"weir/internal/storage/timelimit"
	"weir/internal/upkeep"
)

// account is the storage of one installation: a storage account, or a folder of this machine.
type account interface {
	// Table returns the table of the lanes.
	Table() storage.Table
	// Bodies returns the container of large bodies and of batches.
	Bodies() timelimit.BlobPort
	// Leases returns the leases of lanes and all other leases.
	Leases() storage.Leases
	// LeaseBlobs returns the blobs of the leases.
	LeaseBlobs() upkeep.LeaseBlobs
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
	Close() error
}

// azureAccount is a storage account.
type azureAccount struct{ *azure.Account }

var _ account = azureAccount{}

// LeaseBlobs implements account.
func (a azureAccount) LeaseBlobs() upkeep.LeaseBlobs { return a.Account.LeaseBlobs() }

// Close implements account.
func (a azureAccount) Close() error {
	a.Account.Close()
	return nil
}

// folderAccount is the store of a folder of this machine.
type folderAccount struct{ folder.Account }

var _ account = folderAccount{}

// LeaseBlobs implements account.
func (f folderAccount) LeaseBlobs() upkeep.LeaseBlobs { return f.Account.LeaseBlobs() }

// connectTimeout limits the time in which the process that has a folder answers.
const connectTimeout = 10 * time.Second

// openAccount opens the storage of the settings. It sends no request to a storage account.
func (a *App) openAccount(calls *azure.Counter, o appOptions) error {
	if a.settings.Data != "" {
		return a.openFolder(o)
	}

	s := &a.settings
	opened, err := azure.Open(azure.Config{ConnectionString: string(s.Storage),
		Identity: s.Identity, Prefix: s.Prefix, HasFiles: s.Intake.Files != nil, Counter: calls})
	if err != nil {
		return err // a.account stays nil: an interface with a nil pointer would not be nil
	}

	a.account = azureAccount{opened}

	return nil
}

// openFolder opens the store of the folder. Only a server must have the folder itself; a command
// can use it through the process that has it.
func (a *App) openFolder(o appOptions) error {
	dir, options := a.settings.Data, embedded.Options{Program: o.program, OnBroken: a.reportBroken}
	if o.isServer {
		opened, err := folder.Own(dir, options)
		if err != nil {
			return err
		}
		a.account = folderAccount{opened}
		return nil
	}

	if !embedded.Exists(dir) {
		return fmt.Errorf("%s: %w", dir, embedded.ErrNoStore)
	}

	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	opened, err := folder.Open(ctx, dir, options)
	if err != nil {
		return err
	}

	a.account = folderAccount{opened}

	return nil
}

// errBroken means that the store in the folder cannot be used any more. The next process opens it
// anew.
var errBroken = errors.New("the store in the folder cannot be used any more")

// reportBroken ends a server. Later calls have no effect.
func (a *App) reportBroken(err error) {
	select {
	case a.broken <- fmt.Errorf("%w: %w", errBroken, err):
	default:
	}
}

// closeAccount ends the use of storage.
func (a *App) closeAccount() {
	if a.account == nil {
		return
	}

	if a.limiter != nil {
		a.limiter.Close()
	}

	if err := a.account.Close(); err != nil {
		a.log.Error("app: storage not closed", "err", err)
	}
}
