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

	"weir/internal/storage"
	"weir/internal/storage/timelimit"
)

// Config says which account to use and under which names.
type Config struct {
	// ConnectionString has a key or a SAS; "UseDevelopmentStorage=true" is a local emulator
	// on its usual ports.
	ConnectionString string
	Identity         Identity // is used when there is no connection string
	// Prefix begins every name, so that several installations share an account:
	// 3 to 40 of a-z and 0-9, the first a letter (a table's name allows nothing else).
	Prefix    string
	Counter   *Counter          // counts the requests sent; nil = nobody counts
	Transport http.RoundTripper // nil = one made for storage, HTTP/1.1 with many idle connections
	Now       func() time.Time  // nil = time.Now
}

var prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9]{2,39}$`)

// Account is a storage account with our names in it.
type Account struct {
	table   *Table
	tickets *Queue
	poison  *Queue
	bodies  *Blobs
	leases  *Leases
	now     func() time.Time
	idle    interface{ CloseIdleConnections() }
}

// Open prepares the clients; it sends nothing.
func Open(c Config) (*Account, error) {
	if !prefixPattern.MatchString(c.Prefix) {
		return nil, fmt.Errorf("open storage: prefix %q: want 3 to 40 of a-z and 0-9, a letter first", c.Prefix)
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
		table:   &Table{client: clients.table.NewClient(c.Prefix + "lanes"), name: c.Prefix + "lanes"},
		tickets: &Queue{client: clients.queue.NewQueueClient(c.Prefix + "-tickets")},
		poison:  &Queue{client: clients.queue.NewQueueClient(c.Prefix + "-tickets-poison")},
		bodies:  &Blobs{container: clients.blob.NewContainerClient(c.Prefix + "-bodies")},
		leases:  &Leases{container: clients.blob.NewContainerClient(c.Prefix + "-leases")},
		now:     c.Now,
	}
	a.idle, _ = c.Transport.(interface{ CloseIdleConnections() })
	return a, nil
}

// Table keeps the lanes.
func (a *Account) Table() storage.Table { return timelimit.Table(a.table) }

// Tickets is the queue whose messages trigger.
func (a *Account) Tickets() timelimit.QueuePort { return timelimit.Queue(a.tickets) }

// Poison is the queue where the host puts what it gave up.
func (a *Account) Poison() timelimit.QueuePort { return timelimit.Queue(a.poison) }

// Bodies keeps large bodies.
func (a *Account) Bodies() timelimit.BlobPort { return timelimit.Blobs(a.bodies) }

// Leases are the lanes' leases.
func (a *Account) Leases() storage.Leases { return timelimit.Leases(a.leases) }

// Close lets go of idle connections. The account may still be used.
func (a *Account) Close() {
	if a.idle != nil {
		a.idle.CloseIdleConnections()
	}
}

// Ensure creates the table, queues and containers that are missing, all at once. Several
// processes may call it at once.
func (a *Account) Ensure(ctx context.Context) error {
	creates := []func(context.Context) error{a.createTable, a.tickets.create, a.poison.create,
		createContainer(a.bodies.container), createContainer(a.leases.container)}
	var all errgroup.Group
	for _, create := range creates {
		all.Go(func() error { return create(ctx) })
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("ensure storage: %w", err)
	}
	return nil
}

func (a *Account) createTable(ctx context.Context) error {
	return ensure(ctx, "table create", func(ctx context.Context) error { _, err := a.table.client.CreateTable(ctx, nil); return err })
}

func createContainer(c *container.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		return ensure(ctx, "blob create", func(ctx context.Context) error { _, err := c.Create(ctx, nil); return err })
	}
}

// ensure creates a table, queue or container, unless it is there.
func ensure(ctx context.Context, op string, create func(context.Context) error) error {
	if err := read(ctx, op, create); err != nil && !alreadyThere(err) {
		return err
	}
	return nil
}

// making makes a call that needs a queue or container. If that is gone, making creates it and
// calls once more. No message is lost with it: tickets only ring, and a read of a message without
// its body returns an error.
func making(ctx context.Context, create, call func(context.Context) error) error {
	err := call(ctx)
	if !errors.Is(err, storage.ErrGone) {
		return err
	}
	if failed := create(ctx); failed != nil {
		return errors.Join(err, failed)
	}
	return call(ctx)
}

func alreadyThere(err error) bool {
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

// Skew tells how far storage's clock is ahead of ours, to about half a second: storage
// tells the time in whole seconds.
func (a *Account) Skew(ctx context.Context) (time.Duration, error) {
	var date *time.Time
	var before, after time.Time
	err := once(ctx, "blob properties", func(ctx context.Context) error {
		before = a.now()
		r, err := a.leases.container.GetProperties(ctx, nil)
		after, date = a.now(), r.Date
		return err
	})
	if err == nil && date == nil {
		err = &storage.Error{Op: "blob properties", Kind: storage.Other, Index: -1, Err: errors.New("no Date in the answer")}
	}
	if err != nil {
		return 0, fmt.Errorf("compare clocks: %w", err)
	}
	ours := before.Add(after.Sub(before) / 2)
	return date.Add(time.Second / 2).Sub(ours), nil
}
