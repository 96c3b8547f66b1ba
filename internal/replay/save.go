package replay

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane/jobrow"
	"weir/internal/lane/lists"
	"weir/internal/storage"
)

// errTakenOver means that another process has changed or removed the job's row.
var errTakenOver = errors.New("the job is over, or another process runs it")

// saveCheckpoint writes the job's progress. If another process has changed or removed the job's
// row, saveCheckpoint sets isOver and returns errTakenOver.
func (w *jobRun) saveCheckpoint(ctx context.Context) error {
	w.job.UpdatedAt = w.Now().UTC().Truncate(time.Microsecond)
	row, err := encodeJob(w.job, w.checkpoint)
	if err != nil {
		return err
	}

	row.ETag = w.etag
	etag, err := jobrow.Save(ctx, w.Store, row)
	if err == nil {
		w.etag = etag
		return nil
	}

	return w.resolveWrite(ctx, row, err)
}

// resolveWrite reads the row after a write that returned an error. If the row has the written
// values, the write has taken effect, and resolveWrite returns nil.
func (w *jobRun) resolveWrite(ctx context.Context, wrote jobrow.Row, failed error) error {
	present, err := jobrow.Read(ctx, w.Store, wrote.ID)
	switch {
	case storage.Is(err, storage.NotFound):
		w.isOver = true
		return errTakenOver
	case err != nil:
		return err
	case present.ETag == w.etag:
		return failed // the row is unchanged; the next save writes all progress
	case present.Text == wrote.Text && present.Checkpoint == wrote.Checkpoint:
		w.etag = present.ETag
		return nil
	}

	w.isOver = true
	return errTakenOver
}

// finishJob stores the final state of the job. If that state is Done, finishJob first sets
// Job.Refused to the number of the job's messages that are still dead: after a crash, the count so
// far can include a refusal twice.
func (w *jobRun) finishJob(ctx context.Context, s State, reason string) error {
	if s == Done {
		refused := int64(0)
		err := w.eachDead(ctx, func(d lists.DeadRow) {
			if w.checkpoint.includes(w.job.Filter, d) {
				refused++
			}
		})
		if err != nil {
			return err
		}

		w.job.Refused = refused
		w.job.Matched = max(w.job.Matched, w.job.Replayed+refused)
		w.job.Skipped = w.job.Matched - w.job.Replayed - refused
	}

	setFinal(&w.job, s, reason, w.Now())
	j, err := w.jobs.finishJob(ctx, w.job, w.Finished)
	if err == nil {
		w.isOver = true
		w.Logger.Info("replay: job over", "outcome", string(j.State))
	}

	return err
}

func setFinal(j *Job, s State, reason string, now time.Time) {
	now = now.UTC().Truncate(time.Microsecond)
	j.State, j.StopReason, j.UpdatedAt, j.FinishedAt = s, reason, now, now
}

// saveOnExitTimeout limits the time of the last save, because Runner.Close waits for that save.
const saveOnExitTimeout = 3 * time.Second

// saveOnExit saves the job's progress if ctx has ended before the job was over.
func (w *jobRun) saveOnExit(ctx context.Context) {
	if w.isOver || ctx.Err() == nil {
		return
	}

	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveOnExitTimeout)
	defer cancel()
	if err := w.saveCheckpoint(limited); err != nil {
		w.Logger.Warn("replay: progress not saved", "err", err)
	}
}
