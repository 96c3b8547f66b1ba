package embedded

import (
	"context"
	"fmt"
	"io"
	"maps"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
)

// files implements storage.Files.
type files struct{ container }

var _ storage.Files = (*files)(nil)

// List implements storage.Files.
func (f *files) List(ctx context.Context, prefix, marker string) (page storage.FilePage,
	err error) {
	page.Next, err = f.list(ctx, "file list", prefix, marker, func(name string, e entry) {
		page.Files = append(page.Files, storage.File{Name: name, ETag: e.etag(), Size: e.Size,
			ModifiedAt: e.ModifiedAt.UTC(), ContentType: e.ContentType,
			ContentEncoding: e.ContentEncoding,
			Metadata:        e.Metadata})
	})
	if err != nil {
		return storage.FilePage{}, err
	}

	return page, nil
}

// Read implements storage.Files.
func (f *files) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) (data []byte, err error) {
	const op = "file read"
	err = f.store.read(ctx, op, func(tx *bolt.Tx) error {
		p := f.parts(tx)
		e, err := p.findVersion(op, name, version)
		if err != nil {
			return err
		}

		if offset < 0 || length < 1 || offset+length > e.Size {
			return newError(op, storage.Other,
				fmt.Errorf("bytes %d to %d of %d", offset, offset+length, e.Size))
		}

		data, err = p.readBytes(e, offset, length)

		return err
	})

	return data, err
}

// Write implements storage.Files.
func (f *files) Write(ctx context.Context, name, contentType string, metadata map[string]string,
	body io.Reader) error {
	e := entry{ContentType: contentType, Metadata: maps.Clone(metadata)}

	return f.upload(ctx, "file write", name, e, body)
}

// Delete implements storage.Files.
func (f *files) Delete(ctx context.Context, name string, version storage.ETag) error {
	return f.remove(ctx, "file delete", name, version)
}
