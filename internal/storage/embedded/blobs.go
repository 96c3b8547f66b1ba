package embedded

import (
	"bytes"
	"context"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
	"weir/internal/storage/timelimit"
)

// blobs implements storage.Blobs and storage.BlobMarks.
type blobs struct{ container }

var _ timelimit.BlobPort = (*blobs)(nil)

// Put implements storage.Blobs.
func (b *blobs) Put(ctx context.Context, name string, data []byte) error {
	return b.put(ctx, "blob put", name, entry{}, bytes.Clone(data))
}

// Get implements storage.Blobs.
func (b *blobs) Get(ctx context.Context, name string) (data []byte, err error) {
	const op = "blob get"
	err = b.store.read(ctx, op, func(tx *bolt.Tx) error {
		p := b.parts(tx)
		e, err := p.findVersion(op, name, "")
		if err == nil {
			data, err = p.readBytes(e, 0, e.Size)
		}
		return err
	})

	return data, err
}

// Delete implements storage.Blobs.
func (b *blobs) Delete(ctx context.Context, name string) error {
	return b.remove(ctx, "blob delete", name, "")
}

// Mark implements storage.BlobMarks. As on Azure, it changes the time of the blob.
func (b *blobs) Mark(ctx context.Context, name string) error {
	const op = "blob mark"
	var found entry

	return b.store.committer.do(ctx, &change{op: op, check: func(tx *bolt.Tx) (err error) {
		found, err = b.parts(tx).findVersion(op, name, "")
		return err
	}, write: func(tx *bolt.Tx) error {
		found.IsMarked, found.ModifiedAt = true, b.wholeSecondNow()
		return b.parts(tx).putEntry(name, found)
	}})
}

// List implements storage.BlobMarks.
func (b *blobs) List(ctx context.Context, prefix, marker string) (page storage.BlobPage,
	err error) {
	page.Next, err = b.list(ctx, "blob list", prefix, marker, func(name string, e entry) {
		page.Infos = append(page.Infos, storage.BlobInfo{Name: name, ModifiedAt: e.ModifiedAt.UTC(),
			Marked: e.IsMarked})
	})
	if err != nil {
		return storage.BlobPage{}, err
	}

	return page, nil
}
