package recur

import (
	"bytes"
	"cmp"
	"compress/flate"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/listing"
)

const (
	// inlineLimit is the largest size in bytes of a compressed message in its schedule's row,
	// because a column takes at most 64 KiB. A larger message is in a blob, and the row has the
	// blob's name.
	inlineLimit  = 60 << 10
	inlineColumn = "Text"
	blobColumn   = "Blob"
)

// orphanAge is the age at which a blob that no schedule names is removed. A younger blob may belong
// to a definition that is being stored.
const orphanAge = 24 * time.Hour

func blobPrefix(name string) string { return partition + "/" + name + "/" }

// storeMessage returns the columns of a message for its schedule's row, and stores a large message
// in a blob. Each blob has a new name, so that no reader combines an old row with a new message.
func (s *Store) storeMessage(ctx context.Context, name string,
	text []byte) (map[string]any, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}

	if _, err := w.Write(text); err != nil {
		return nil, err
	}

	if err := w.Close(); err != nil {
		return nil, err
	}

	if b.Len() <= inlineLimit {
		return map[string]any{inlineColumn: b.Bytes()}, nil
	}

	blob := blobPrefix(name) + rand.Text()
	if err := s.Bodies.Put(ctx, blob, b.Bytes()); err != nil {
		return nil, apiError("schedule: store message", err)
	}

	return map[string]any{blobColumn: blob}, nil
}

// loadMessage sets schedule.Message. It returns NotFound if the blob is gone, and Unreadable if it
// is damaged.
func (s *Store) loadMessage(ctx context.Context, schedule *Schedule) error {
	packed, _ := schedule.columns[inlineColumn].([]byte)
	if blob, _ := schedule.columns[blobColumn].(string); blob != "" {
		var err error
		if packed, err = s.Bodies.Get(ctx, blob); err != nil {
			return apiError("schedule: read message", err)
		}
	}

	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		return &storage.Error{Op: "schedule: message", Kind: storage.Unreadable,
			Index: -1, Err: err}
	}

	schedule.Message = text

	return nil
}

// removeMessage removes the blob of a schedule that has been changed: before is the schedule with
// this blob, and now is the schedule that stays (empty if it is deleted).
func (s *Store) removeMessage(ctx context.Context, before, now Schedule) error {
	old, _ := before.columns[blobColumn].(string)
	kept, _ := now.columns[blobColumn].(string)
	if old == "" || old == kept {
		return nil
	}
	return s.removeBlob(ctx, old)
}

func (s *Store) removeBlob(ctx context.Context, name string) error {
	if err := s.Bodies.Delete(ctx, name); err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}
	return nil
}

// RemoveMessages removes old blobs that no schedule names, from a marker on; "" = from the
// beginning. Such blobs remain if a process dies, or storage fails, before a definition is stored,
// or after it was replaced. RemoveMessages returns the marker to continue from, and reports whether
// the walk has ended. It goes on behind a blob that storage refuses to remove.
func (s *Store) RemoveMessages(ctx context.Context, marker string) (next string, isDone bool,
	err error) {
	var refused error
	next, isDone, err = listing.Walk([]string{partition + "/"}, marker,
		func(prefix, at string) (string, error) {
			page, err := s.Bodies.List(ctx, prefix, at)
			if err != nil {
				return "", err
			}

			var old []string
			for _, blob := range page.Infos {
				if s.Now().Sub(blob.ModifiedAt) >= orphanAge {
					old = append(old, blob.Name)
				}
			}

			if len(old) == 0 {
				return page.Next, nil
			}

			// A blob that no schedule names now will not be named later: each definition has a new
			// blob.
			named, err := s.listBlobs(ctx)
			if err != nil {
				return "", err
			}

			for _, name := range old {
				if named[name] {
					continue
				}

				switch err := s.removeBlob(ctx, name); storage.KindOf(err) {
				case storage.Throttled, storage.Unavailable, storage.Ambiguous, storage.Denied:
					return "", err
				default:
					refused = cmp.Or(refused, err)
				}
			}

			return page.Next, ctx.Err()
		})

	return next, isDone, errors.Join(err, refused)
}

// listBlobs returns the names of the blobs that schedules name.
func (s *Store) listBlobs(ctx context.Context) (names map[string]bool, err error) {
	schedules, err := s.List(ctx)
	if err != nil {
		return nil, err
	}

	names = map[string]bool{}
	for _, schedule := range schedules {
		if name, _ := schedule.columns[blobColumn].(string); name != "" {
			names[name] = true
		}
	}

	return names, nil
}
