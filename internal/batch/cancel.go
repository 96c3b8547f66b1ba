package batch

import (
	"context"
	"time"

	"weir/internal/job"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// cancelTries is the largest number of tries of one Cancel. A try fails, for example, if the
// process that works on the batch writes the batch's row at the same time.
const cancelTries = 10

// Cancel stores a request to cancel a batch: it sets CancelAskedAt. The process that works on the
// batch still appends the parts that it has begun to append. The batch then becomes cancelled if it
// has more parts. Otherwise the batch becomes filed. Messages that were already appended stay as
// they are.
//
// A repeated call changes nothing. If the batch was filed or rejected without such a request,
// Cancel returns Conflict. After an Unavailable error it is not known whether the request is
// stored.
func (r *Runner) Cancel(ctx context.Context, id string) (wire.Batch, error) {
	var failed error
	for range cancelTries {
		one, err := r.readBatch(ctx, id)
		switch {
		case err != nil:
			return wire.Batch{}, apiError(err)
		case one.batch.State == wire.BatchCancelled, one.batch.IsFinal() &&
			!one.batch.CancelAskedAt.IsZero():
			return one.batch, nil
		case one.batch.IsFinal():
			return wire.Batch{}, &weir.Error{Kind: weir.Conflict, Op: "batch",
				Message: "the batch has ended: it is " + string(one.batch.State)}
		case one.batch.CancelAskedAt.IsZero():
			one.batch.CancelAskedAt = r.Now().UTC().Truncate(time.Microsecond)
			if failed = r.store.save(ctx, &one); failed != nil {
				continue // the next read shows whether the request is stored
			}
		}

		r.jobs.Start(r.newJob(id, one.batch.Upstream))
		return one.batch, nil
	}

	if storage.Is(failed, storage.Precondition) {
		failed = &storage.Error{Op: "batch cancel", Kind: storage.Throttled, Index: -1, Err: failed}
	}

	return wire.Batch{}, apiError(failed)
}

// readBatch reads the row of a batch. If the id does not have the form of an id, readBatch returns
// NotFound without a read.
func (r *Runner) readBatch(ctx context.Context, id string) (row, error) {
	if !job.IsID(id, randomBytes) {
		return row{}, &storage.Error{Op: "batch get", Kind: storage.NotFound, Index: -1}
	}
	return r.store.read(ctx, id)
}

// isCancelled reports whether a cancel was requested and the batch still has parts to check or to
// append.
func (w *work) isCancelled() bool {
	return !w.batch.CancelAskedAt.IsZero() &&
		(w.batch.State == wire.BatchChecking || w.progress.Next <= w.batch.Parts)
}
