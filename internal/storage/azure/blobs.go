package azure

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"weir/internal/storage"
	"weir/internal/storage/timelimit"
)

// markName is the metadata key of a blob's mark. The mark means that a table row refers to the
// blob. Storage can change the case of the key's letters.
const markName = "filed"

const maxBlobs = 1000 // maximum number of blobs in one page of List

// Blobs implements storage.Blobs on a container of the account.
type Blobs struct {
	container *container.Client
}

var (
	_ storage.Blobs     = (*Blobs)(nil)
	_ storage.BlobMarks = (*Blobs)(nil)
)

// Put implements storage.Blobs. If the container does not exist, Put creates the container. A write
// replaces a blob's metadata, so Put removes the blob's mark.
func (b *Blobs) Put(ctx context.Context, name string, data []byte) error {
	return createAndRetry(ctx, createContainer(b.container),
		func(ctx context.Context) error { return b.uploadBlob(ctx, name, data) })
}

func (b *Blobs) uploadBlob(ctx context.Context, name string, data []byte) error {
	return doIdempotent(ctx, "blob put", func(ctx context.Context) error {
		_, err := b.container.NewBlockBlobClient(name).Upload(ctx,
			uploadBody{bytes.NewReader(data), ctx}, nil)
		return err
	})
}

// Get implements storage.Blobs.
func (b *Blobs) Get(ctx context.Context, name string) (data []byte, err error) {
	err = doObjectRead(ctx, "blob get", func(ctx context.Context) error {
		r, err := b.container.NewBlobClient(name).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}

		body := r.NewRetryReader(ctx, nil)
		defer body.Close()
		data, err = io.ReadAll(downloadBody{body, ctx})

		return err
	})
	if err != nil {
		return nil, err
	}

	return data, nil
}

// uploadBody is the body of an upload. It reports to package timelimit each part that the transport
// reads. Otherwise a slow upload would be cut off as a call that hangs.
type uploadBody struct {
	io.ReadSeeker
	ctx context.Context
}

// Read implements io.Reader.
func (u uploadBody) Read(p []byte) (int, error) {
	timelimit.Moved(u.ctx)
	return u.ReadSeeker.Read(p)
}

// Close implements io.Closer.
func (u uploadBody) Close() error { return nil }

// downloadBody is the body of a download. It reports each received part to package timelimit.
type downloadBody struct {
	io.Reader
	ctx context.Context
}

// Read implements io.Reader.
func (d downloadBody) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if n > 0 {
		timelimit.Moved(d.ctx)
	}
	return n, err
}

// Delete implements storage.Blobs. Delete does not repeat the request: if the first answer was
// lost, a repeat would return NotFound.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	return doOnce(ctx, "blob delete", func(ctx context.Context) error {
		_, err := b.container.NewBlobClient(name).Delete(ctx, nil)
		return err
	})
}

// Mark implements storage.BlobMarks.
func (b *Blobs) Mark(ctx context.Context, name string) error {
	return doIdempotent(ctx, "blob mark", func(ctx context.Context) error {
		_, err := b.container.NewBlobClient(name).SetMetadata(ctx,
			map[string]*string{markName: new("1")}, nil)
		return err
	})
}

// List implements storage.BlobMarks. Each page costs one request.
func (b *Blobs) List(ctx context.Context, prefix, marker string) (page storage.BlobPage,
	err error) {
	items, next, err := listPage(ctx, b.container, "blob list", prefix, marker)
	page.Next = next
	for _, item := range items {
		page.Infos = append(page.Infos, describeBlob(deref(item.Name), item))
	}

	return page, err
}

// listPage reads one page of the blobs in a container whose names begin with prefix, from a marker
// on; "" = from the beginning.
func listPage(ctx context.Context, in *container.Client, op, prefix,
	marker string) (items []*container.BlobItem, next string, err error) {
	o := &container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true}, MaxResults: new(int32(maxBlobs)),
		Prefix: &prefix,
	}

	if marker != "" {
		o.Marker = &marker
	}

	err = doRead(ctx, op, func(ctx context.Context) error {
		r, err := in.NewListBlobsFlatPager(o).NextPage(ctx)
		if err != nil {
			return err
		}

		next, items = deref(r.NextMarker), nil
		if r.Segment != nil {
			items = r.Segment.BlobItems
		}

		return nil
	})

	return items, next, err
}

func describeBlob(name string, item *container.BlobItem) storage.BlobInfo {
	info := storage.BlobInfo{Name: name}
	if item.Properties != nil {
		info.ModifiedAt = deref(item.Properties.LastModified).UTC()
	}

	for k, v := range item.Metadata {
		info.Marked = info.Marked || (strings.EqualFold(k, markName) && deref(v) != "")
	}

	return info
}
