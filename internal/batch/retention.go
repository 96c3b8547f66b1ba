package batch

import (
	"context"
	"strings"
	"time"

	"weir/internal/storage"
)

// uploadTime is longer than any call of Accept. So a blob that is older than uploadTime can be removed if its batch has
// no row.
const uploadTime = 24 * time.Hour

// RemoveExpired removes the final batches whose retention is over. It also removes old blobs without a batch, which
// remain, for example, if a process dies during Accept.
func (r *Runner) RemoveExpired(ctx context.Context) error {
	q := storage.Query{Partition: partition, From: idPrefix(r.Now().Add(-retention)), To: keyPrefix}
	for {
		page, err := r.store.table.Range(ctx, q)
		if err != nil {
			return err
		}
		for _, found := range page.Rows {
			if err := r.removeBatch(ctx, found); err != nil {
				return err
			}
			q.From, q.After = "", found.Key
		}
		if !page.More {
			return r.removeForgotten(ctx)
		}
	}
}

func (r *Runner) removeBatch(ctx context.Context, found storage.Row) error {
	one, err := parseRow(found)
	if err != nil {
		return err
	}
	id := one.batch.ID
	if !one.batch.IsFinal() {
		return nil // a process can still append parts of the batch
	}
	for marker, more := "", true; more; more = marker != "" {
		page, err := r.Blobs.List(ctx, blobPrefix(id), marker)
		if err != nil {
			return err
		}
		for _, blob := range page.Infos {
			if err := r.removeBlob(ctx, blob.Name); err != nil {
				return err
			}
		}
		marker = page.Next
	}
	if err := r.store.releaseKey(ctx, &one); err != nil {
		return err
	}
	// RemoveExpired finds the batch by the batch's own row. That row is removed last, so that the next call can
	// continue after a failure.
	for _, key := range []string{workPrefix + id, id} {
		if err := r.store.removeRow(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) removeBlob(ctx context.Context, name string) error {
	if err := r.Blobs.Delete(ctx, name); err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}
	return nil
}

// removeForgotten removes old blobs whose batch has no row.
func (r *Runner) removeForgotten(ctx context.Context) error {
	isKnown := map[string]bool{}
	for marker, more := "", true; more; more = marker != "" {
		page, err := r.Blobs.List(ctx, blobsPrefix, marker)
		if err != nil {
			return err
		}
		for _, blob := range page.Infos {
			id, _, _ := strings.Cut(strings.TrimPrefix(blob.Name, blobsPrefix), "/")
			if r.Now().Sub(blob.ModifiedAt) < uploadTime {
				continue
			}
			known, isCached := isKnown[id]
			if !isCached {
				_, err := r.store.table.Get(ctx, partition, id)
				if err != nil && !storage.Is(err, storage.NotFound) {
					return err
				}
				known = err == nil
				isKnown[id] = known
			}
			if !known {
				if err := r.removeBlob(ctx, blob.Name); err != nil {
					return err
				}
			}
		}
		marker = page.Next
	}
	return nil
}
