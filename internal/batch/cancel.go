package batch

import (
	"context"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// cancelTries is the largest number of tries of a cancel. A try fails, for example, if the process that works on the
// batch writes the row at the same time.
const cancelTries = 10

// Cancel requests the end of a batch, and stores the time of the request in CancelAskedAt. The process that works on
// the batch files the window that it has begun, and then cancels the batch; if no part is left then, the batch becomes
// filed. Messages of filed parts stay as they are. A repeat changes nothing. If the batch is filed or rejected already,
// Cancel returns Conflict. After an Unavailable error the request may be stored or not.
func (r *Runner) Cancel(ctx context.Context, id string) (wire.Batch, error) {
	var failed error
	for range cancelTries {
		one, err := r.readBatch(ctx, id)
		switch {
		case err != nil:
			return wire.Batch{}, apiError(err)
		case one.batch.State == wire.BatchCancelled:
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
		r.startWork(id)
		return one.batch, nil
	}
	if storage.Is(failed, storage.Precondition) {
		failed = &storage.Error{Op: "batch cancel", Kind: storage.Throttled, Index: -1, Err: failed}
	}
	return wire.Batch{}, apiError(failed)
}

// readBatch reads the row of a batch. For an id that no batch can have it returns NotFound without a read.
func (r *Runner) readBatch(ctx context.Context, id string) (row, error) {
	if !idPattern.MatchString(id) {
		return row{}, &storage.Error{Op: "batch get", Kind: storage.NotFound, Index: -1}
	}
	return r.store.read(ctx, id)
}

// isCancelled reports whether a cancel was requested before all parts were filed.
func (w *work) isCancelled() bool {
	return !w.batch.CancelAskedAt.IsZero() && (w.batch.State == wire.BatchChecking || w.progress.Next <= w.batch.Parts)
}
