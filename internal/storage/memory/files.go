package memory

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/internal/storage"
)

// Files implements storage.Files on one container.
type Files struct {
	now      func() time.Time
	mu       sync.Mutex
	files    map[string]*file
	versions int // number of versions that were written so far, of all files
}

type file struct {
	storage.File
	data []byte
}

var _ storage.Files = (*Files)(nil)

// List implements storage.Files. The marker is the last name of the previous page.
func (f *Files) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	if err := ctx.Err(); err != nil {
		return storage.FilePage{}, newError("file list", storage.Unavailable, err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	names, next := listNames(f.files, prefix, marker)
	page := storage.FilePage{Next: next}
	for _, name := range names {
		found := f.files[name].File
		found.Metadata = maps.Clone(found.Metadata)
		page.Files = append(page.Files, found)
	}

	return page, nil
}

// Read implements storage.Files.
func (f *Files) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, newError("file read", storage.Unavailable, err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.findVersion("file read", name, version)
	if err != nil {
		return nil, err
	}

	if offset < 0 || length < 1 || offset+length > found.Size {
		return nil, newError("file read", storage.Other,
			fmt.Errorf("bytes %d to %d of %d", offset, offset+length, found.Size))
	}

	return bytes.Clone(found.data[offset : offset+length]), nil
}

// Write implements storage.Files.
func (f *Files) Write(ctx context.Context, name, contentType string, metadata map[string]string,
	body io.Reader) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return err
	}

	if err := ctx.Err(); err != nil {
		return newError("file write", storage.Unavailable, err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.putVersion(storage.File{Name: name, ContentType: contentType, Metadata: maps.Clone(metadata)},
		data)

	return nil
}

// Append adds bytes to the end of a file, like a writer of an append blob. It creates a missing
// file.
func (f *Files) Append(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var before []byte
	if found := f.files[name]; found != nil {
		before = found.data
	}

	f.putVersion(storage.File{Name: name, IsGrowing: true}, slices.Concat(before, data))
}

// putVersion stores a new version of a file. The caller has locked mu.
func (f *Files) putVersion(as storage.File, data []byte) {
	f.versions++
	as.ETag, as.Size = storage.ETag(fmt.Sprintf("\"0x%X\"", f.versions)), int64(len(data))
	as.ModifiedAt = f.now().UTC().Truncate(time.Second)
	f.files[as.Name] = &file{as, data}
}

// Delete implements storage.Files.
func (f *Files) Delete(ctx context.Context, name string, version storage.ETag) error {
	if err := ctx.Err(); err != nil {
		return newError("file delete", storage.Unavailable, err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.findVersion("file delete", name, version); err != nil {
		return err
	}

	delete(f.files, name)

	return nil
}

// findVersion returns a file if it has the given version. An empty version matches every version.
// The caller has locked mu.
func (f *Files) findVersion(op, name string, version storage.ETag) (*file, error) {
	found := f.files[name]
	switch {
	case found == nil:
		return nil, newError(op, storage.NotFound, nil)
	case version != "" && version != found.ETag:
		return nil, newError(op, storage.Precondition, nil)
	}

	return found, nil
}
