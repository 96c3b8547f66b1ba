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

// markName is the metadata that marks a blob; storage may give names back in another case.
const markName = "filed"

const maxBlobs = 1000 // of one listing

// Blobs is storage.Blobs on a container of the account.
type Blobs struct {
	container *container.Client
}

var (
	_ storage.Blobs     = (*Blobs)(nil)
	_ storage.BlobMarks = (*Blobs)(nil)
)

// Put implements storage.Blobs. Writing a blob drops its metadata, and so its mark. It makes a
// missing container.
func (b *Blobs) Put(ctx context.Context, name string, data []byte) error {
	return making(ctx, createContainer(b.container), func(ctx context.Context) error { return b.put(ctx, name, data) })
}

func (b *Blobs) put(ctx context.Context, name string, data []byte) error {
	return rewrite(ctx, "blob put", func(ctx context.Context) error {
		_, err := b.container.NewBlockBlobClient(name).Upload(ctx, upload{bytes.NewReader(data), ctx}, nil)
		return err
	})
}

// Get implements storage.Blobs.
func (b *Blobs) Get(ctx context.Context, name string) (data []byte, err error) {
	err = read(ctx, "blob get", func(ctx context.Context) error {
		r, err := b.container.NewBlobClient(name).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		body := r.NewRetryReader(ctx, nil)
		defer body.Close()
		data, err = io.ReadAll(download{body, ctx})
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// upload is a body that reports each part sent, so that a slow call is not taken for one that
// hangs.
type upload struct {
	io.ReadSeeker
	ctx context.Context
}

// Read implements io.Reader.
func (u upload) Read(p []byte) (int, error) {
	timelimit.Moved(u.ctx)
	return u.ReadSeeker.Read(p)
}

// Close implements io.Closer.
func (u upload) Close() error { return nil }

// download does the same for a body that is received.
type download struct {
	io.Reader
	ctx context.Context
}

// Read implements io.Reader.
func (d download) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if n > 0 {
		timelimit.Moved(d.ctx)
	}
	return n, err
}

// Delete implements storage.Blobs. It is sent once: a repeat would find nothing and say so.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	return once(ctx, "blob delete", func(ctx context.Context) error {
		_, err := b.container.NewBlobClient(name).Delete(ctx, nil)
		return err
	})
}

// Mark implements storage.BlobMarks.
func (b *Blobs) Mark(ctx context.Context, name string) error {
	return rewrite(ctx, "blob mark", func(ctx context.Context) error {
		_, err := b.container.NewBlobClient(name).SetMetadata(ctx, map[string]*string{markName: new("1")}, nil)
		return err
	})
}

// List implements storage.BlobMarks. Each page costs one request.
func (b *Blobs) List(ctx context.Context, prefix, marker string) (page storage.BlobPage, err error) {
	o := &container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true}, MaxResults: new(int32(maxBlobs)), Prefix: &prefix,
	}
	if marker != "" {
		o.Marker = &marker
	}
	err = read(ctx, "blob list", func(ctx context.Context) error {
		r, err := b.container.NewListBlobsFlatPager(o).NextPage(ctx)
		if err != nil {
			return err
		}
		page = storage.BlobPage{Next: value(r.NextMarker)}
		if r.Segment == nil {
			return nil
		}
		for _, item := range r.Segment.BlobItems {
			page.Infos = append(page.Infos, infoOf(value(item.Name), item))
		}
		return nil
	})
	return page, err
}

func infoOf(name string, item *container.BlobItem) storage.BlobInfo {
	info := storage.BlobInfo{Name: name}
	if item.Properties != nil {
		info.ModifiedAt = value(item.Properties.LastModified).UTC()
	}
	for k, v := range item.Metadata {
		info.Marked = info.Marked || (strings.EqualFold(k, markName) && value(v) != "")
	}
	return info
}
