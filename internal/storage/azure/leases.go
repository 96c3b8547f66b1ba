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

// Leases implements storage.Leases on the blobs of a container.
type Leases struct {
	container *container.Client
}

var _ storage.Leases = (*Leases)(nil)

// Acquire implements storage.Leases. It also creates a missing container.
func (l *Leases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	err := createAndRetry(ctx, createContainer(l.container),
		func(ctx context.Context) error { return l.acquireOnce(ctx, name, id, length) })
	if !storage.Is(err, storage.NotFound) {
		return err
	}

	if err := l.createBlob(ctx, name); err != nil {
		return err
	}

	return l.acquireOnce(ctx, name, id, length)
}

func (l *Leases) acquireOnce(ctx context.Context, name, id string, length time.Duration) error {
	return l.callLease(ctx, "lease acquire", name, id,
		func(ctx context.Context, c *lease.BlobClient) error {
			_, err := c.AcquireLease(ctx, wholeSeconds(length), nil)
			return err
		})
}

// createBlob creates a missing blob, without content. It returns Unavailable in place of Ambiguous,
// because Ambiguous would tell the caller of Acquire that the id perhaps holds the lease.
func (l *Leases) createBlob(ctx context.Context, name string) error {
	err := doOnce(ctx, "lease create", func(ctx context.Context) error {
		_, err := l.container.NewBlockBlobClient(name).Upload(ctx,
			streaming.NopCloser(bytes.NewReader(nil)),
			&blockblob.UploadOptions{AccessConditions: ifAbsent()})
		return err
	})
	switch storage.KindOf(err) {
	case storage.Conflict, storage.Precondition: // another process has created the blob
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
	return toConflict(l.callLease(ctx, "lease renew", name, id,
		func(ctx context.Context, c *lease.BlobClient) error {
			_, err := c.RenewLease(ctx, nil)
			return err
		}))
}

// Release implements storage.Leases.
func (l *Leases) Release(ctx context.Context, name, id string) error {
	return toConflict(l.callLease(ctx, "lease release", name, id,
		func(ctx context.Context, c *lease.BlobClient) error {
			_, err := c.ReleaseLease(ctx, nil)
			return err
		}))
}

// leaseIDPattern matches a UUID. The emulator accepts other ids, but Azure does not. So callLease
// refuses other ids, and a wrong id fails in tests, too.
var leaseIDPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func (l *Leases) callLease(ctx context.Context, op, name, id string,
	f func(context.Context, *lease.BlobClient) error) error {
	if !leaseIDPattern.MatchString(id) {
		return defectError(op, errors.New("a lease id must be a UUID"))
	}

	c, err := lease.NewBlobClient(l.container.NewBlobClient(name),
		&lease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		return defectError(op, err)
	}

	return doOnce(ctx, op, func(ctx context.Context) error { return f(ctx, c) })
}

// toConflict returns Conflict for a missing blob, a missing container and a failed precondition,
// because the id then does not hold the lease. It returns other errors unchanged.
func toConflict(err error) error {
	var e *storage.Error
	if errors.As(err, &e) && (e.Kind == storage.NotFound || e.Kind == storage.Precondition ||
		errors.Is(err, storage.ErrGone)) {
		return &storage.Error{Op: e.Op, Kind: storage.Conflict, Index: -1, Err: e.Err}
	}
	return err
}
