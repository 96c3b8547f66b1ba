package azure

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"weir/internal/storage"
)

// Leases is storage.Leases on blobs of a container.
type Leases struct {
	container *container.Client
}

var _ storage.Leases = (*Leases)(nil)

// Acquire implements storage.Leases. It makes a missing blob, empty, and a missing container.
func (l *Leases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	err := making(ctx, createContainer(l.container),
		func(ctx context.Context) error { return l.acquire(ctx, name, id, length) })
	if !storage.Is(err, storage.NotFound) {
		return err
	}
	if err := l.create(ctx, name); err != nil {
		return err
	}
	return l.acquire(ctx, name, id, length)
}

func (l *Leases) acquire(ctx context.Context, name, id string, length time.Duration) error {
	return l.call(ctx, "lease acquire", name, id, func(ctx context.Context, c *lease.BlobClient) error {
		_, err := c.AcquireLease(ctx, seconds(length), nil)
		return err
	})
}

// create makes the blob unless it is there. Whatever goes wrong, no lease was taken.
func (l *Leases) create(ctx context.Context, name string) error {
	err := once(ctx, "lease create", func(ctx context.Context) error {
		_, err := l.container.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(nil)),
			&blockblob.UploadOptions{AccessConditions: ifAbsent()})
		return err
	})
	switch storage.KindOf(err) {
	case storage.Conflict, storage.Precondition: // another made it, and may hold it already
		return nil
	case storage.Ambiguous:
		return &storage.Error{Op: "lease create", Kind: storage.Unavailable, Index: -1, Err: err}
	}
	return err
}

func ifAbsent() *blob.AccessConditions {
	return &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
	}
}

// Renew implements storage.Leases.
func (l *Leases) Renew(ctx context.Context, name, id string) error {
	return notOurs(l.call(ctx, "lease renew", name, id, func(ctx context.Context, c *lease.BlobClient) error {
		_, err := c.RenewLease(ctx, nil)
		return err
	}))
}

// Release implements storage.Leases.
func (l *Leases) Release(ctx context.Context, name, id string) error {
	return notOurs(l.call(ctx, "lease release", name, id, func(ctx context.Context, c *lease.BlobClient) error {
		_, err := c.ReleaseLease(ctx, nil)
		return err
	}))
}

// leaseIDPattern is a UUID's. The emulator takes anything, even nothing.
var leaseIDPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func (l *Leases) call(ctx context.Context, op, name, id string, f func(context.Context, *lease.BlobClient) error) error {
	if !leaseIDPattern.MatchString(id) {
		return malformed(op, errors.New("a lease id must be a UUID"))
	}
	c, err := lease.NewBlobClient(l.container.NewBlobClient(name), &lease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		return malformed(op, err)
	}
	return once(ctx, op, func(ctx context.Context) error { return f(ctx, c) })
}

// notOurs returns one error for every reason why a lease is not held: a blob that is gone, alone
// or with its container, has no lease, and a mismatch may come as a failed precondition.
func notOurs(err error) error {
	var e *storage.Error
	if errors.As(err, &e) && (e.Kind == storage.NotFound || e.Kind == storage.Precondition || errors.Is(err, storage.ErrGone)) {
		return &storage.Error{Op: e.Op, Kind: storage.Conflict, Index: -1, Err: e.Err}
	}
	return err
}
