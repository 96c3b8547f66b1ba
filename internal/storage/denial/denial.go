// Package denial decides whether a denied read concerns one object or the whole container.
//
// Storage answers 401 or 403 to every read if the caller lacks a role. It answers 403 to the reads
// of a single object if, for example, the key with which this object is encrypted is gone, or if
// the access list of the object leaves the caller out. So a denied read has the kind
// storage.Denied, except if another object of the container was read after the first denied read of
// this object. Then the kind is storage.Unreadable.
package denial

import (
	"context"
	"errors"
	"sync"

	"weir/internal/storage"
)

// maxObjects bounds the memory for denied objects. A full memory is cleared: each object then needs
// another denied read before its error has the kind Unreadable.
const maxObjects = 10_000

// reads are the reads of one container.
type reads struct {
	mu        sync.Mutex
	succeeded int64 // number of successful reads
	// by name of an object: succeeded at the first denied read; no entry after a success
	deniedAt map[string]int64
}

func newReads() *reads { return &reads{deniedAt: map[string]int64{}} }

// judgeRead returns the error of a read. If the read was denied because of its object, the result
// has the kind Unreadable.
func (r *reads) judgeRead(name string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	switch {
	case err == nil:
		r.succeeded++
		delete(r.deniedAt, name)
		return nil
	case !storage.Is(err, storage.Denied):
		return err
	}

	before, isKnown := r.deniedAt[name]
	if !isKnown {
		if len(r.deniedAt) >= maxObjects {
			clear(r.deniedAt)
		}
		r.deniedAt[name] = r.succeeded
		return err
	}

	if r.succeeded == before {
		return err
	}

	var denied *storage.Error
	errors.As(err, &denied)
	judged := *denied
	judged.Kind = storage.Unreadable

	return &judged
}

// BlobPort has all calls for blobs.
type BlobPort interface {
	storage.Blobs
	storage.BlobMarks
}

// Blobs judges the denied reads of a container of blobs.
func Blobs(inner BlobPort) BlobPort { return &blobs{inner, newReads()} }

type blobs struct {
	BlobPort
	reads *reads
}

// Get implements storage.Blobs.
func (b *blobs) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := b.BlobPort.Get(ctx, name)
	return data, b.reads.judgeRead(name, err)
}

// Files judges the denied reads of a container of files.
func Files(inner storage.Files) storage.Files { return &files{inner, newReads()} }

type files struct {
	storage.Files
	reads *reads
}

// Read implements storage.Files.
func (f *files) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) ([]byte, error) {
	data, err := f.Files.Read(ctx, name, version, offset, length)
	return data, f.reads.judgeRead(name, err)
}
