package inbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"weir/internal/storage"
)

// A file that was taken, and that storage then refuses to delete, is "left": it stays in the inbox,
// for example because its writer has a lease on it. Weir must not take the same version again,
// however long it lies there: the Idempotency-Key of its message ends with the retention of the
// message, and the file would then replace newer content of its ordering key. So a marker among the
// accepted files remembers the version, and is removed only when the inbox no longer has that
// version.

// leftPrefix begins the names of the markers. No folder of an accepted file is named so: those
// begin with the day, or are ids of messages in base64, which are longer.
const leftPrefix = "left/"

// leftFiles has the names of all markers. A run lists them once at its start, because a look for
// one marker would cost a request for each file. It is safe for concurrent use.
type leftFiles struct {
	mu      sync.Mutex
	markers map[string]bool
}

// nameTag is the metadata name with the name of a marked file, in hexadecimal digits, because
// metadata are ASCII.
const nameTag = "name"

// leftMarker returns the name of the marker of a file's version.
func leftMarker(f storage.File) string { return leftPrefix + strings.TrimPrefix(keyOf(f), "file-") }

// loadLeft lists the markers.
func (c *Collector) loadLeft(ctx context.Context) error {
	found := map[string]bool{}
	for marker, more := "", true; more; more = marker != "" {
		page, err := c.Accepted.List(ctx, leftPrefix, marker)
		if err != nil {
			return err
		}

		for _, f := range page.Files {
			found[f.Name] = true
		}

		marker = page.Next
	}

	c.left.mu.Lock()
	defer c.left.mu.Unlock()
	c.left.markers = found

	return nil
}

// isLeft reports whether an earlier run took this version of a file and could not delete it.
func (c *Collector) isLeft(f storage.File) bool {
	c.left.mu.Lock()
	defer c.left.mu.Unlock()
	return c.left.markers[leftMarker(f)]
}

// removeTaken deletes a file from the inbox, except if the file has a newer version. If storage
// refuses to delete the file, removeTaken leaves a marker.
func (c *Collector) removeTaken(ctx context.Context, f storage.File) error {
	err := c.deleteTaken(ctx, f)
	if err == nil || endsRun(ctx, err) {
		return err
	}

	marked := writePauses.Do(ctx, func() error {
		return c.Accepted.Write(ctx, leftMarker(f), "text/plain",
			map[string]string{nameTag: hex.EncodeToString([]byte(f.Name))},
			bytes.NewReader([]byte("taken\n")))
	})

	return errors.Join(err, marked)
}

// deleteTaken deletes a file from the inbox. It returns no error if the inbox no longer has this
// version of the file. Storage can refuse a delete as that of another version for a reason that
// Weir does not know. So deleteTaken looks at the file before it believes that.
func (c *Collector) deleteTaken(ctx context.Context, f storage.File) error {
	err := writePauses.Do(ctx, func() error { return c.Inbox.Delete(ctx, f.Name, f.ETag) })
	switch {
	case storage.Is(err, storage.NotFound):
		return nil
	case !storage.Is(err, storage.Precondition):
		return err
	}

	found, lookErr := findExact(ctx, c.Inbox, f.Name)
	if lookErr != nil {
		return lookErr
	}
	if found == nil || leftMarker(*found) != leftMarker(f) {
		return nil
	}

	return &storage.Error{Op: "file delete", Kind: storage.Conflict, Index: -1, Err: err}
}

// removeLeft deletes a file that an earlier run took, and its marker.
func (c *Collector) removeLeft(ctx context.Context, f storage.File) error {
	if err := c.deleteTaken(ctx, f); err != nil {
		return fmt.Errorf("the file was taken before, and cannot be deleted: %w", err)
	}

	err := c.Accepted.Delete(ctx, leftMarker(f), "")
	if storage.Is(err, storage.NotFound) {
		return nil
	}

	return err
}

// hasMarked reports whether the inbox has the version of a file to which a marker belongs.
func (c *Collector) hasMarked(ctx context.Context, marker storage.File) (bool, error) {
	for tag, value := range marker.Metadata {
		if !strings.EqualFold(tag, nameTag) {
			continue
		}

		name, err := hex.DecodeString(value)
		if err != nil {
			return false, nil // Weir did not write this marker
		}

		found, err := findExact(ctx, c.Inbox, string(name))
		if errors.Is(err, storage.ErrGone) {
			return false, nil
		}

		return found != nil && leftMarker(*found) == marker.Name, err
	}

	return false, nil
}
