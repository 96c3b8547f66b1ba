package memory

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
)

// maxListed is the largest number of names in one page of a listing.
const maxListed = 1000

// Blobs implements storage.Blobs and storage.BlobMarks on one container.
type Blobs struct {
	now   func() time.Time
	mu    sync.Mutex
	blobs map[string]*blob
}

type blob struct {
	data       []byte
	modifiedAt time.Time
	marked     bool
}

var (
	_ storage.Blobs     = (*Blobs)(nil)
	_ storage.BlobMarks = (*Blobs)(nil)
)

// Put implements storage.Blobs.
func (b *Blobs) Put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return newError("blob put", storage.Unavailable, err)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.blobs[name] = &blob{data: slices.Clone(data), modifiedAt: b.wholeSecondNow()}
	return nil
}

// Get implements storage.Blobs.
func (b *Blobs) Get(ctx context.Context, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, newError("blob get", storage.Unavailable, err)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if found := b.blobs[name]; found != nil {
		return slices.Clone(found.data), nil
	}

	return nil, newError("blob get", storage.NotFound, nil)
}

// Delete implements storage.Blobs.
func (b *Blobs) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return newError("blob delete", storage.Unavailable, err)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blobs[name] == nil {
		return newError("blob delete", storage.NotFound, nil)
	}

	delete(b.blobs, name)

	return nil
}

// Mark implements storage.BlobMarks. As on Azure, Mark changes the blob's time of modification.
func (b *Blobs) Mark(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return newError("blob mark", storage.Unavailable, err)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.blobs[name] == nil {
		return newError("blob mark", storage.NotFound, nil)
	}

	b.blobs[name].marked, b.blobs[name].modifiedAt = true, b.wholeSecondNow()

	return nil
}

// List implements storage.BlobMarks. The marker is the last name of the previous page.
func (b *Blobs) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	if err := ctx.Err(); err != nil {
		return storage.BlobPage{}, newError("blob list", storage.Unavailable, err)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	names, next := listNames(b.blobs, prefix, marker)
	page := storage.BlobPage{Next: next}
	for _, name := range names {
		page.Infos = append(page.Infos,
			storage.BlobInfo{Name: name, ModifiedAt: b.blobs[name].modifiedAt,
				Marked: b.blobs[name].marked})
	}

	return page, nil
}

// listNames returns the sorted names of one page, and the marker of the next page. For the last
// page, next is empty.
func listNames[T any](all map[string]T, prefix, marker string) (names []string, next string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, prefix) || name <= marker {
			continue
		}
		if len(names) == maxListed {
			return names, names[maxListed-1]
		}

		names = append(names, name)
	}

	return names, ""
}

// wholeSecondNow returns the time in whole seconds, because Azure stores whole seconds.
func (b *Blobs) wholeSecondNow() time.Time { return b.now().UTC().Truncate(time.Second) }
