package replay

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// errElsewhere says that another has changed the job's note: it is over, or carried there.
var errElsewhere = errors.New("the job is over, or in other hands")

// save writes how far the job has come.
func (w *run) save(ctx context.Context) error {
	w.job.UpdatedAt = w.Now().UTC().Truncate(time.Microsecond)
	note, err := row(w.job, w.place)
	if err != nil {
		return err
	}
	note.ETag = w.etag
	etag, err := w.Store.SaveJob(ctx, note)
	if err == nil {
		w.etag = etag
		return nil
	}
	return w.settle(ctx, note, err)
}

// settle finds out after a failed write whether it was done.
func (w *run) settle(ctx context.Context, wrote lane.Job, failed error) error {
	stands, err := w.Store.Job(ctx, wrote.ID)
	switch {
	case storage.Is(err, storage.NotFound):
		w.over = true
		return errElsewhere
	case err != nil:
		return err
	case stands.ETag == w.etag:
		return failed // nothing was written; the next write tells the same and more
	case stands.Text == wrote.Text && stands.Place == wrote.Place:
		w.etag = stands.ETag
		return nil
	}
	w.over = true
	return errElsewhere
}

// end writes that the job is over. What was not replayed though it is still dead was
// refused: said anew, since after a crash some were asked for twice.
func (w *run) end(ctx context.Context, s State, reason string) error {
	if s == Done {
		refused := int64(0)
		err := w.eachDead(ctx, func(d lane.DeadRow) {
			if w.place.means(w.job.Filter, d) {
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
	w.job.end(s, reason, w.Now())
	j, err := w.books.finish(ctx, w.job, w.Finished)
	if err == nil {
		w.over = true
		w.Logger.Info("replay: job over", "outcome", string(j.State))
	}
	return err
}

// end marks a job as over.
func (j *Job) end(s State, reason string, now time.Time) {
	now = now.UTC().Truncate(time.Microsecond)
	j.State, j.StopReason, j.UpdatedAt, j.FinishedAt = s, reason, now, now
}

// leaveTimeout is how long the last note of a carrier may take.
const leaveTimeout = 3 * time.Second

// leave writes how far the job has come, for whoever carries it next.
func (w *run) leave(ctx context.Context) {
	if w.over || ctx.Err() == nil {
		return
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := w.save(limited); err != nil {
		w.Logger.Warn("replay: the last turn is not written down", "err", err)
	}
}
