package recur

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"weir/internal/storage"
)

const (
	// inlineLimit is the largest size in bytes of a compressed message in its schedule's row, because a column takes at
	// most 64 KiB. A larger message is in a blob, and the row has the blob's name.
	inlineLimit  = 60 << 10
	inlineColumn = "Text"
	blobColumn   = "Blob"
)

// orphanAge is the age at which a blob that no schedule names is removed. A younger blob may belong to a definition
// that is being stored.
const orphanAge = 24 * time.Hour

func blobPrefix(name string) string { return partition + "/" + name + "/" }

// storeMessage returns the columns of a message for its schedule's row, and stores a large message in a blob. Each blob
// has a new name, so that no reader combines an old row with a new message.
func (s *Store) storeMessage(ctx context.Context, name string, text []byte) (map[string]any, error) {
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

// loadMessage sets schedule.Message. It returns NotFound if the blob is gone.
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
		return fmt.Errorf("schedule %s: message: %w", schedule.Name, err)
	}
	schedule.Message = text
	return nil
}

// removeMessage removes a blob that a schedule does not need any more: before is the schedule with this blob, and now
// is the schedule that stays (empty if it is deleted). It also removes old blobs of the schedule that are of no use,
// because the change that wrote them failed. If before has no blob, or now has the same blob, it removes nothing.
func (s *Store) removeMessage(ctx context.Context, before, now Schedule) error {
	old, _ := before.columns[blobColumn].(string)
	kept, _ := now.columns[blobColumn].(string)
	if old == "" || old == kept {
		return nil
	}
	if err := s.Bodies.Delete(ctx, old); err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}
	for marker := ""; ; {
		page, err := s.Bodies.List(ctx, blobPrefix(before.Name), marker)
		if err != nil {
			return err
		}
		for _, info := range page.Infos {
			if info.Name == kept || s.Now().Sub(info.ModifiedAt) < orphanAge {
				continue
			}
			if err := s.Bodies.Delete(ctx, info.Name); err != nil && !storage.Is(err, storage.NotFound) {
				return err
			}
		}
		if marker = page.Next; marker == "" {
			return nil
		}
	}
}
