package batch

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir/internal/job"
	"weir/internal/storage"
	"weir/internal/storage/listing"
)

// uploadTime is longer than any call of Accept. So a blob that is older than uploadTime can be
// removed if its batch has no row.
const uploadTime = 24 * time.Hour

// RemoveExpired removes the final batches whose retention is over, until none is left or ctx ends.
// It reports whether none is left. If storage refuses to remove a batch, RemoveExpired removes the
// others, and returns the first such error.
func (r *Runner) RemoveExpired(ctx context.Context) (isDone bool, err error) {
	var refused error
	q := storage.Query{Partition: partition, From: job.IDPrefix(r.Now().Add(-retention)),
		To: keyPrefix}

	for {
		page, err := r.store.table.Range(ctx, q)
		if err != nil {
			return false, err
		}

		for _, found := range page.Rows {
			err := r.removeBatch(ctx, found)
			if ctx.Err() != nil || isAway(err) {
				return false, err
			}

			if refused == nil {
				refused = err
			}

			q.From, q.After = "", found.Key
		}

		if !page.More {
			return true, refused
		}
	}
}

// isAway reports whether an error means that storage cannot be reached.
func isAway(err error) bool {
	switch storage.KindOf(err) {
	case storage.Throttled, storage.Unavailable, storage.Ambiguous:
		return true
	}
	return false
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

	// RemoveExpired finds the batch by the batch's own row. That row is removed last, so that the
	// next call can continue after a failure.
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

// RemoveDocuments removes old documents whose batch has no row, from a marker on; "" = from the
// beginning. Such documents remain, for example, if a process dies during Accept. RemoveDocuments
// returns the marker to continue from, and reports whether the walk has ended.
func (r *Runner) RemoveDocuments(ctx context.Context, marker string) (next string, isDone bool,
	err error) {
	isKnown, refused := map[string]bool{}, error(nil)
	next, isDone, err = listing.Walk([]string{blobsPrefix}, marker,
		func(prefix, at string) (string, error) {
			page, err := r.Blobs.List(ctx, prefix, at)
			if err != nil {
				return "", err
			}

			for _, blob := range page.Infos {
				err := r.removeForgotten(ctx, blob, isKnown)
				if ctx.Err() != nil || isAway(err) {
					return "", err
				}

				if refused == nil {
					refused = err
				}
			}

			return page.Next, nil
		})

	return next, isDone, errors.Join(err, refused)
}

// removeForgotten removes a blob if it is old and its batch has no row. The map isKnown has the
// batches that were looked up.
func (r *Runner) removeForgotten(ctx context.Context, blob storage.BlobInfo,
	isKnown map[string]bool) error {
	if r.Now().Sub(blob.ModifiedAt) < uploadTime {
		return nil
	}

	id, _, _ := strings.Cut(strings.TrimPrefix(blob.Name, blobsPrefix), "/")
	if _, isCached := isKnown[id]; !isCached {
		_, err := r.store.table.Get(ctx, partition, id)
		if err != nil && !storage.Is(err, storage.NotFound) {
			return err
		}
		isKnown[id] = err == nil
	}

	if isKnown[id] {
		return nil
	}

	return r.removeBlob(ctx, blob.Name)
}
