package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/internal/job"
	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// work is a batch that this process works on, under the batch's lease.
type work struct {
	*Runner
	row
	shift         *shift
	problems      []wire.PartProblem
	isUnsaved     bool      // addLateProblem has added problems that are not stored yet
	savedAt       time.Time // when the row was last saved or read
	hasProgressed bool      // saveProgress has stored a step of the work
}

// showInterval is the time between two saves of the number of checked parts.
const showInterval = 2 * time.Second

// errTakenOver means that another process has changed or removed the batch's row.
var errTakenOver = errors.New("another process works on the batch")

// processBatch continues the work on a batch from the stored state, in the shifts of this process.
// It is the Run of a job.Job: failures is the number of failures since the last progress.
func (r *Runner) processBatch(ctx context.Context, id string, t *shift,
	failures int) (hasProgressed bool, err error) {
	if err := t.begin(ctx); err != nil {
		return false, err
	}

	one, err := r.store.read(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return false, r.store.endWork(ctx, id)
	}
	if err != nil {
		return false, err
	}

	w := &work{Runner: r, row: one, shift: t, savedAt: r.Now()}
	err = panics.Catch(func() error { return w.takeSteps(ctx) })
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, errTakenOver):
		err = job.Leave(err)
	case isOwnFault(err):
		err = w.judgeStuck(ctx, failures, err)
	}

	return w.hasProgressed, err
}

func (w *work) takeSteps(ctx context.Context) error {
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
		w.batch.State, w.batch.FinishedAt = wire.BatchCancelled,
			w.Now().UTC().Truncate(time.Microsecond)
		if err := w.save(ctx); err != nil {
			return err
		}
	}

	return w.endWork(ctx)
}

// endWork removes everything of a final batch that is only needed for the work on it.
func (w *work) endWork(ctx context.Context) error {
	id := w.batch.ID
	if err := w.finishFile(ctx); err != nil {
		return err
	}

	if err := removeDocument(ctx, w.Blobs, id, w.batch.Bytes); err != nil {
		return err
	}

	if w.batch.State == wire.BatchRejected {
		// No part became a message, so a client may post the document again with the same
		// idempotency key, for example after a change of contracts.
		if err := w.store.releaseKey(ctx, &w.row); err != nil {
			return err
		}
	}

	if err := w.store.endWork(ctx, id); err != nil {
		return err
	}

	w.Logger.Info("batch: over", "outcome", string(w.batch.State))

	return nil
}

// finishFile hands a final batch with its problems to Config.FinishFile. It does nothing if the
// batch was posted, and has no file in the archive.
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

// checkParts checks all parts, and saves the next state of the batch: "filing" or "rejected". If
// the batch is cancelled meanwhile, checkParts does not change the state.
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
		b.State, b.Reason, b.FinishedAt = wire.BatchRejected, reason,
			w.Now().UTC().Truncate(time.Microsecond)
	}

	return w.saveProgress(ctx)
}

// admitParts counts the valid parts against the daily quota of the upstream. If the quota refuses
// the parts, admitParts returns the reason, and otherwise "". If the process dies before the batch
// is saved, another process counts the parts a second time.
func (w *work) admitParts(ctx context.Context) (string, error) {
	count := w.batch.Parts - w.batch.Invalid
	if w.isAdmitted(count) {
		return "", nil
	}

	err := w.Quotas.AdmitBatch(ctx, w.batch.Upstream, count)
	if err == nil {
		w.setAdmitted(count)
	}

	if refused := refusalOf(err); refused != nil {
		return truncateText(refused.Message), nil
	}

	return "", err
}

// isAdmitted reports whether this process has already counted this number of parts of the batch
// against the quota.
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

// findReason checks all parts, but stops if the batch is cancelled. If the document is rejected as
// a whole, findReason returns the reason, and otherwise "".
func (w *work) findReason(ctx context.Context) (string, error) {
	parts, err := openParts(ctx, w)
	for err == nil && !w.isCancelled() {
		var p part
		if p, err = parts.next(); err != nil {
			break
		}

		w.batch.Parts++
		if p.err == nil {
			_, p.err = w.Filer.Validate(ctx, p.newSubmission(w.batch.Upstream))
		}

		if weir.KindOf(p.err) == weir.Unavailable {
			return "", p.err
		}

		w.addProblem(p)
		if w.Now().Sub(w.savedAt) >= showInterval {
			err = w.save(ctx)
		}
	}

	if errors.Is(err, io.EOF) {
		return "", nil
	}

	if refused := refusalOf(err); refused != nil {
		return truncateText(refused.Message), nil
	}

	return "", err
}

// refusalOf returns the error by which Weir refuses a document or its parts for good, or nil if err
// is another error.
func refusalOf(err error) *weir.Error {
	var refused *weir.Error
	if errors.As(err, &refused) && refused.Kind != weir.Unavailable {
		return refused
	}
	return nil
}

// addProblem counts a part if the part is invalid. It keeps the problems of the first maxProblems
// invalid parts only.
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

func (r *Runner) loadProblems(ctx context.Context, id string) (problems []wire.PartProblem,
	err error) {
	text, err := r.Blobs.Get(ctx, problemsName(id))
	if storage.IsObjectFault(err) {
		// No part is invalid, or the problems are not stored yet. If storage does not return them,
		// the batch has to end without them.
		return nil, nil
	}

	if err != nil {
		return nil, &unreadError{"the problems of the parts", err}
	}

	return problems, json.Unmarshal(text, &problems)
}

// saveProgress writes the batch's row after a step of the work.
func (w *work) saveProgress(ctx context.Context) error {
	w.progress.StuckSince = time.Time{}
	err := w.save(ctx)
	w.hasProgressed = w.hasProgressed || err == nil
	return err
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
	case present.batch.UpdatedAt.Equal(w.batch.UpdatedAt) &&
		present.progress.Next == w.progress.Next:
		w.etag, w.batch.CancelAskedAt = present.etag, present.batch.CancelAskedAt
		return nil

	case w.batch.CancelAskedAt.IsZero() && present.batch.UpdatedAt.Equal(before) &&
		!present.batch.CancelAskedAt.IsZero():
		w.etag, w.batch.CancelAskedAt = present.etag, present.batch.CancelAskedAt
		return w.save(ctx)
	}

	return errTakenOver
}
