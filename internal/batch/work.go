package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/internal/clock"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// work is a batch that this process works on, under the batch's lease.
type work struct {
	*Runner
	row
	problems  []wire.PartProblem
	isUnsaved bool      // addLateProblem has added problems that are not stored yet
	savedAt   time.Time // when the row was last saved or read
}

const (
	// minRetry is the pause after the first failure; each further pause is twice as long as the one before. After
	// maxFailures failures without progress the process leaves the batch to the next call of ResumeOrphans, so that it
	// can work on other batches meanwhile.
	minRetry    = time.Second
	maxFailures = 5
	// showInterval is the time between two saves of the number of checked parts.
	showInterval = 2 * time.Second
)

// errTakenOver means that another process has changed or removed the batch's row.
var errTakenOver = errors.New("another process works on the batch")

// processBatch works on a batch, and tries again after failures. After maxFailures failures without progress it returns
// the last error. ctx must end with the batch's lease.
func (r *Runner) processBatch(ctx context.Context, id string) error {
	delay, failures, window := minRetry, 0, 0
	for {
		reached, err := r.tryBatchSafely(ctx, id)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, errTakenOver):
			return err
		}
		if reached > window {
			delay, failures, window = minRetry, 0, reached
		}
		if failures++; failures == maxFailures {
			return err
		}
		r.Logger.Warn("batch: step failed, will retry", "delay_ms", delay.Milliseconds(), "err", err)
		if !clock.Sleep(ctx, delay) {
			return context.Cause(ctx)
		}
		delay *= 2
	}
}

// tryBatchSafely calls tryBatch, and turns a panic into an error. Otherwise one batch would end each process that works
// on the batch.
func (r *Runner) tryBatchSafely(ctx context.Context, id string) (reached int, err error) {
	err = panics.Catch(func() (err error) {
		reached, err = r.tryBatch(ctx, id)
		return err
	})
	return reached, err
}

// tryBatch continues the work on a batch from the stored state. It returns the number of the first part of the next
// window (the next parts to append), or 0 if the batch's row could not be read.
func (r *Runner) tryBatch(ctx context.Context, id string) (reached int, err error) {
	one, err := r.store.read(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return 0, r.store.endWork(ctx, id)
	}
	if err != nil {
		return 0, err
	}
	w := &work{Runner: r, row: one, savedAt: r.Now()}
	err = w.takeSteps(ctx)
	return w.progress.Next, err
}

func (w *work) takeSteps(ctx context.Context) error {
	r, id := w.Runner, w.batch.ID
	if w.batch.State == wire.BatchChecking && !w.isCancelled() {
		if err := w.checkParts(ctx); err != nil {
			return err
		}
	}
	if w.batch.State == wire.BatchFiling && !w.isCancelled() {
		if err := w.fileParts(ctx); err != nil {
			return err
		}
	}
	if w.isCancelled() && !w.batch.IsFinal() {
		w.batch.State, w.batch.FinishedAt = wire.BatchCancelled, w.Now().UTC().Truncate(time.Microsecond)
		if err := w.save(ctx); err != nil {
			return err
		}
	}
	if err := w.finishFile(ctx); err != nil {
		return err
	}
	if err := removeDocument(ctx, r.Blobs, id, w.batch.Bytes); err != nil {
		return err
	}
	if w.batch.State == wire.BatchRejected {
		// No part became a message, so a client may post the document again with the same idempotency key, for example
		// after a change of contracts.
		if err := r.store.releaseKey(ctx, &w.row); err != nil {
			return err
		}
	}
	if err := r.store.endWork(ctx, id); err != nil {
		return err
	}
	r.Logger.Info("batch: over", "outcome", string(w.batch.State))
	return nil
}

// finishFile hands a final batch with its problems to Config.FinishFile. It does nothing if the batch was posted, and
// has no file in the archive.
func (w *work) finishFile(ctx context.Context) (err error) {
	if w.FinishFile == nil || w.progress.File == "" {
		return nil
	}
	b := w.batch
	if b.Problems, err = w.loadProblems(ctx, b.ID); err != nil {
		return err
	}
	return w.FinishFile(ctx, b, w.progress.File)
}

// checkParts checks all parts, and saves the next state of the batch: "filing" or "rejected". If the batch is cancelled
// meanwhile, checkParts does not change the state.
func (w *work) checkParts(ctx context.Context) error {
	w.batch.Parts, w.batch.Invalid = 0, 0
	reason, err := w.findReason(ctx)
	if err != nil {
		return err
	}
	if err := w.saveProblems(ctx); err != nil {
		return err
	}
	if w.isCancelled() {
		return nil
	}
	b := &w.batch
	switch {
	case reason != "":
	case b.Parts == 0:
		reason = "the batch has no part"
	case b.Invalid == b.Parts:
		reason = "no part is valid"
	case b.Invalid > 0 && b.Mode == wire.BatchAll:
		reason = fmt.Sprintf("%d of %d parts are invalid", b.Invalid, b.Parts)
	}
	if reason == "" && b.Upstream != "" && w.Quotas != nil {
		if reason, err = w.admitParts(ctx); err != nil {
			return err
		}
	}
	if b.State = wire.BatchFiling; reason != "" {
		b.State, b.Reason, b.FinishedAt = wire.BatchRejected, reason, w.Now().UTC().Truncate(time.Microsecond)
	}
	return w.save(ctx)
}

// admitParts counts the valid parts against the daily quota of the upstream. If the quota refuses the parts, admitParts
// returns the reason, and otherwise "". If the process dies before the batch is saved, another process counts the parts
// a second time.
func (w *work) admitParts(ctx context.Context) (string, error) {
	count := w.batch.Parts - w.batch.Invalid
	if w.isAdmitted(count) {
		return "", nil
	}
	err := w.Quotas.AdmitBatch(ctx, w.batch.Upstream, count)
	if err == nil {
		w.setAdmitted(count)
	}
	var refused *weir.Error
	if errors.As(err, &refused) && refused.Kind != weir.Unavailable {
		return truncateText(refused.Message), nil
	}
	return "", err
}

// isAdmitted reports whether this process has already counted this number of parts of the batch against the quota.
func (w *work) isAdmitted(count int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.admitted[w.batch.ID] == count
}

func (w *work) setAdmitted(count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitted[w.batch.ID] = count
}

// findReason checks all parts, but stops if the batch is cancelled. If the document is rejected as a whole, findReason
// returns the reason, and otherwise "".
func (w *work) findReason(ctx context.Context) (string, error) {
	var refused *weir.Error
	parts, err := openParts(ctx, &w.Config, &w.row)
	for err == nil && !w.isCancelled() {
		var p part
		if p, err = parts.next(); err != nil {
			break
		}
		w.batch.Parts++
		if p.err == nil {
			_, p.err = w.Filer.Validate(ctx, p.newSubmission(w.batch.Upstream))
		}
		if errors.As(p.err, &refused) && refused.Kind == weir.Unavailable {
			return "", p.err
		}
		w.addProblem(p)
		if w.Now().Sub(w.savedAt) >= showInterval {
			err = w.save(ctx)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return "", nil
	case errors.As(err, &refused) && refused.Kind != weir.Unavailable:
		return truncateText(refused.Message), nil
	}
	return "", err
}

// addProblem counts a part if the part is invalid. It keeps the problems of the first maxProblems invalid parts only.
func (w *work) addProblem(p part) {
	if p.err == nil {
		return
	}
	w.batch.Invalid++
	w.Refused(p.err)
	var refused *weir.Error
	if !errors.As(p.err, &refused) {
		refused = &weir.Error{Message: "the part cannot be read"}
	}
	if len(w.problems) < maxProblems {
		w.problems = append(w.problems, describeProblem(p, refused))
	}
}

func problemsName(id string) string { return blobPrefix(id) + "problems" }

func (w *work) saveProblems(ctx context.Context) error {
	if len(w.problems) == 0 {
		return nil
	}
	text, err := json.Marshal(w.problems)
	if err != nil {
		return err
	}
	err = w.Blobs.Put(ctx, problemsName(w.batch.ID), text)
	w.isUnsaved = w.isUnsaved && err != nil
	return err
}

func (r *Runner) loadProblems(ctx context.Context, id string) (problems []wire.PartProblem, err error) {
	text, err := r.Blobs.Get(ctx, problemsName(id))
	if storage.IsObjectFault(err) {
		// No part is invalid, or the problems are not stored yet. If storage does not return them, the batch has to end
		// without them.
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &problems)
	}
	return problems, err
}

// save writes the batch's row. If the write fails, save reads the row:
//
//   - If the row has the new values, only the answer to the write was lost, and save returns nil.
//   - If the row is unchanged, save returns the error of the write.
//   - If Cancel has written the row, save takes over the request to cancel, and writes again.
//   - If another process has written or removed the row, save returns errTakenOver.
func (w *work) save(ctx context.Context) error {
	before := w.batch.UpdatedAt
	w.savedAt = w.Now()
	w.batch.UpdatedAt = w.savedAt.UTC().Truncate(time.Microsecond)
	failed := w.store.save(ctx, &w.row)
	if failed == nil {
		return nil
	}
	present, err := w.store.read(ctx, w.batch.ID)
	switch {
	case storage.Is(err, storage.NotFound):
		return errTakenOver
	case err != nil:
		return errors.Join(failed, err)
	case present.etag == w.etag:
		return failed // nothing was written
	case present.batch.UpdatedAt.Equal(w.batch.UpdatedAt) && present.progress.Next == w.progress.Next:
		w.etag, w.batch.CancelAskedAt = present.etag, present.batch.CancelAskedAt
		return nil
	case w.batch.CancelAskedAt.IsZero() && present.batch.UpdatedAt.Equal(before) &&
		!present.batch.CancelAskedAt.IsZero():
		w.etag, w.batch.CancelAskedAt = present.etag, present.batch.CancelAskedAt
		return w.save(ctx)
	}
	return errTakenOver
}
