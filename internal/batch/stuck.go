package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/job"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/wire"
)

// stuckPatience is the time without progress after which a batch ends that cannot go on by its own
// fault.
const stuckPatience = time.Hour

// unreadError is a failed read of a blob of the batch. The cause can be the blob, or storage as a
// whole.
type unreadError struct {
	subject string
	cause   error
}

func (e *unreadError) Error() string { return e.subject + ": " + e.cause.Error() }

func (e *unreadError) Unwrap() error { return e.cause }

// isOwnFault reports whether the cause of a failure can be this batch alone: the work panics, or
// storage does not return a blob of the batch. All other failures concern the lanes or storage, and
// the work waits.
func isOwnFault(err error) bool {
	var unread *unreadError
	var panicked *panics.Error
	return errors.As(err, &unread) || errors.As(err, &panicked)
}

// judgeStuck is called after a failure whose cause can be this batch alone. It first tries some
// times, and then once in each sweep. When the batch has made no progress for stuckPatience,
// although storage answers reads of other blobs, judgeStuck ends the batch, so that it does not
// wait for ever.
func (w *work) judgeStuck(ctx context.Context, failures int, cause error) error {
	one, err := w.store.read(ctx, w.batch.ID) // again, because the failed step has changed w.row
	if err != nil {
		return errors.Join(cause, err)
	}

	w.row, w.savedAt = one, w.Now()

	since := w.progress.StuckSince
	switch {
	case w.batch.IsFinal():
		return job.Leave(cause)
	case since.IsZero() && failures+1 < job.MaxTries:
		return cause
	case since.IsZero():
		w.progress.StuckSince = w.Now().UTC().Truncate(time.Microsecond)
		if err := w.save(ctx); err != nil {
			return errors.Join(cause, err)
		}
		return job.Leave(cause)

	case w.Now().Sub(since) < stuckPatience || !w.answersReads(ctx):
		return job.Leave(cause)
	}

	w.Logger.Error("batch: cannot go on, ended", "err", cause)
	w.setStuck(cause)
	if err := w.saveProgress(ctx); err != nil {
		return err
	}

	return w.takeSteps(ctx)
}

// answersReads reports whether storage answers a read of a blob that does not exist.
func (w *work) answersReads(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	_, err := w.Blobs.Get(limited, blobPrefix(w.batch.ID)+"absent")
	return err == nil || storage.Is(err, storage.NotFound)
}

// setStuck ends a batch that cannot go on. If some parts are messages already, the batch is filed
// without the others.
func (w *work) setStuck(cause error) {
	w.batch.Reason = "the work on the document failed for an hour by a defect of Weir, which is in the log"
	var unread *unreadError
	if errors.As(cause, &unread) {
		w.batch.Reason = fmt.Sprintf("for an hour storage has not returned %s: %s", unread.subject,
			storage.Describe(unread.cause))
	}

	if w.batch.State == wire.BatchFiling {
		w.setFiled()
		return
	}

	w.batch.State, w.batch.FinishedAt = wire.BatchRejected, w.Now().UTC().Truncate(time.Microsecond)
}
