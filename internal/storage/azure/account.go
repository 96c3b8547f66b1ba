package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"

	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/storage/denial"
	"weir/internal/storage/timelimit"
)

// Config has the settings of a storage account.
type Config struct {
	// ConnectionString has a key or a SAS; "UseDevelopmentStorage=true" means a local emulator on
	// its usual ports.
	ConnectionString string
	Identity         Identity // used if there is no connection string
	// Prefix begins the name of each table, queue and container, so that several installations can
	// share an account. It has 3 to 40 characters from a to z and 0 to 9, and begins with a letter.
	// Azure allows no hyphen in names of tables, and no upper-case letter in names of queues and
	// containers.
	Prefix string
	// HasFiles makes Ensure also create the containers of the inbox and the archive.
	HasFiles bool
	Counter  *Counter // counts the requests; nil = no count
	// nil = a transport for storage: HTTP/1.1 with many idle connections
	Transport http.RoundTripper
	Now       func() time.Time // nil = time.Now
}

var _ storage.Partitions = (*Account)(nil)

var prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9]{2,39}$`)

// Account is a storage account with Weir's table, queues and containers.
type Account struct {
	table   *Table
	tickets *Queue
	poison  *Queue
	events  *Queue
	bodies  *Blobs
	leases  *Leases
	// The inbox, and the archive's containers of accepted and rejected files.
	inbox, accepted, rejected *Files
	judged                    judgedReads
	hasFiles                  bool
	now                       func() time.Time
	idle                      interface{ CloseIdleConnections() }
}

// judgedReads are the containers as callers get them: a hanging call is cut off, and a denied read
// is judged.
type judgedReads struct {
	bodies                    timelimit.BlobPort
	inbox, accepted, rejected storage.Files
}

// Open prepares the clients of an account. It sends no request.
func Open(c Config) (*Account, error) {
	if !prefixPattern.MatchString(c.Prefix) {
		return nil, fmt.Errorf(
			"open storage: prefix %q: want 3 to 40 of a-z and 0-9, a letter first", c.Prefix)
	}

	if c.Now == nil {
		c.Now = time.Now
	}

	if c.Transport == nil {
		c.Transport = newTransport()
	}

	clients, err := newClients(c)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}

	a := &Account{
		table: &Table{client: clients.table.NewClient(c.Prefix + "lanes"),
			name: c.Prefix + "lanes"},
		tickets:  &Queue{client: clients.queue.NewQueueClient(c.Prefix + "-tickets")},
		poison:   &Queue{client: clients.queue.NewQueueClient(c.Prefix + "-tickets-poison")},
		events:   &Queue{client: clients.queue.NewQueueClient(c.Prefix + "-inbox-events")},
		bodies:   &Blobs{container: clients.blob.NewContainerClient(c.Prefix + "-bodies")},
		leases:   &Leases{container: clients.blob.NewContainerClient(c.Prefix + "-leases")},
		inbox:    &Files{container: clients.blob.NewContainerClient(c.Prefix + "-inbox")},
		accepted: &Files{container: clients.blob.NewContainerClient(c.Prefix + "-accepted")},
		rejected: &Files{container: clients.blob.NewContainerClient(c.Prefix + "-rejected")},
		hasFiles: c.HasFiles,
		now:      c.Now,
	}

	a.judged = judgedReads{bodies: denial.Blobs(timelimit.Blobs(a.bodies)),
		inbox:    denial.Files(timelimit.Files(a.inbox)),
		accepted: denial.Files(timelimit.Files(a.accepted)),
		rejected: denial.Files(timelimit.Files(a.rejected))}

	a.idle, _ = c.Transport.(interface{ CloseIdleConnections() })

	return a, nil
}

// Table returns the table of the lanes.
func (a *Account) Table() storage.Table { return timelimit.Table(a.table) }

// Tickets returns the queue whose messages trigger functions/process.
func (a *Account) Tickets() timelimit.QueuePort { return timelimit.Queue(a.tickets) }

// Poison returns the queue to which the host moves the tickets that it gives up.
func (a *Account) Poison() timelimit.QueuePort { return timelimit.Queue(a.poison) }

// InboxEvents returns the queue of inbox events. A message of this queue triggers functions/inbox.
func (a *Account) InboxEvents() timelimit.QueuePort { return timelimit.Queue(a.events) }

// Bodies returns the container of large bodies and of batches.
func (a *Account) Bodies() timelimit.BlobPort { return a.judged.bodies }

// Leases returns the leases of lanes and all other leases.
func (a *Account) Leases() storage.Leases { return timelimit.Leases(a.leases) }

// LeaseBlobs returns the blobs of the leases. A blob cannot be deleted while a process holds its
// lease.
func (a *Account) LeaseBlobs() timelimit.BlobPort {
	return timelimit.Blobs(&Blobs{container: a.leases.container})
}

// Inbox returns the container that other systems put files into.
func (a *Account) Inbox() storage.Files { return a.judged.inbox }

// Accepted returns the container of the archive's accepted files.
func (a *Account) Accepted() storage.Files { return a.judged.accepted }

// Rejected returns the container of the archive's rejected files.
func (a *Account) Rejected() storage.Files { return a.judged.rejected }

// Close closes idle connections. The account can still be used after Close.
func (a *Account) Close() {
	if a.idle != nil {
		a.idle.CloseIdleConnections()
	}
}

// Ensure creates the table, queues and containers that do not exist. Several processes can call
// Ensure at the same time.
func (a *Account) Ensure(ctx context.Context) error {
	creates := []func(context.Context) error{a.createTable, a.tickets.createQueue,
		a.poison.createQueue, a.events.createQueue,
		createContainer(a.bodies.container), createContainer(a.leases.container)}
	if a.hasFiles {
		for _, files := range []*Files{a.inbox, a.accepted, a.rejected} {
			creates = append(creates, createContainer(files.container))
		}
	}

	var all errgroup.Group
	for _, create := range creates {
		all.Go(panics.Guard(func() error { return create(ctx) }))
	}

	if err := all.Wait(); err != nil {
		return fmt.Errorf("ensure storage: %w", err)
	}

	return nil
}

// EnsureFiles creates the containers of the inbox and the archive, if they do not exist.
func (a *Account) EnsureFiles(ctx context.Context) error {
	for _, files := range []*Files{a.inbox, a.accepted, a.rejected} {
		if err := createContainer(files.container)(ctx); err != nil {
			return fmt.Errorf("ensure storage: %w", err)
		}
	}
	return nil
}

func (a *Account) createTable(ctx context.Context) error {
	return createIfMissing(ctx, "table create",
		func(ctx context.Context) error {
			_,
				err := a.table.client.CreateTable(ctx, nil)
			return err
		})
}

func createContainer(c *container.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		return createIfMissing(ctx, "blob create",
			func(ctx context.Context) error { _, err := c.Create(ctx, nil); return err })
	}
}

// createIfMissing calls create, and ignores the error that the table, queue or container already
// exists.
func createIfMissing(ctx context.Context, op string, create func(context.Context) error) error {
	if err := doRead(ctx, op, create); err != nil && !isAlreadyThere(err) {
		return err
	}
	return nil
}

// createAndRetry makes a call that needs a queue or a container. If the queue or container does not
// exist, createAndRetry creates it and repeats the call. Messages of upstreams are never in queues,
// so none is lost with a queue. If a container was deleted, its blobs are lost, and a read of such
// a blob still returns an error.
func createAndRetry(ctx context.Context, create, call func(context.Context) error) error {
	err := call(ctx)
	if !errors.Is(err, storage.ErrGone) {
		return err
	}

	if failed := create(ctx); failed != nil {
		return errors.Join(err, failed)
	}

	return call(ctx)
}

func isAlreadyThere(err error) bool {
	var r *azcore.ResponseError
	if !errors.As(err, &r) {
		return false
	}

	switch r.ErrorCode {
	case "TableAlreadyExists", "QueueAlreadyExists", "ContainerAlreadyExists":
		return true
	}

	return false
}

// Skew returns the time on storage's clock minus the time on this process's clock. The result is
// exact to about half a second, because storage's answer has only whole seconds.
func (a *Account) Skew(ctx context.Context) (time.Duration, error) {
	var date *time.Time
	var before, after time.Time
	err := doOnce(ctx, "blob properties", func(ctx context.Context) error {
		before = a.now()
		r, err := a.leases.container.GetProperties(ctx, nil)
		after, date = a.now(), r.Date
		return err
	})
	if err == nil && date == nil {
		err = &storage.Error{Op: "blob properties", Kind: storage.Other, Index: -1,
			Err: errors.New("no Date in the answer")}
	}

	if err != nil {
		return 0, fmt.Errorf("compare clocks: %w", err)
	}

	ours := before.Add(after.Sub(before) / 2)

	return date.Add(time.Second / 2).Sub(ours), nil
}
