package replay

import (
	"context"
	"fmt"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// batchSpan is the time that a batch takes at the job's rate: after a crash the next process
	// checks that many messages again.
	batchSpan = 2 * time.Second
	// maxBatch is the largest number of messages of a batch.
	maxBatch = 50
	// maxOpen is the largest number of open messages.
	maxOpen = 500
	// Open messages are polled after minPoll while outcomes arrive, and at most maxPoll apart
	// otherwise.
	minPoll, maxPoll = 2 * time.Second, 30 * time.Second
	// After a failure the same step is tried again after minRetry, then after twice as long each
	// time, up to maxRetry.
	minRetry, maxRetry = time.Second, 30 * time.Second
)

// jobRun is a job that this process runs, under the job's lease.
type jobRun struct {
	*Runner
	job          Job
	checkpoint   checkpoint
	etag         storage.ETag
	lanes        []int      // lanes that can have messages of the job
	deadIndex    *deadIndex // of the present lane; nil = not read yet
	isResumed    bool       // some messages of checkpoint.Next may have been requested already
	isUnsaved    bool       // checkpoint.Next is not saved yet
	nextBatchAt  time.Time
	pollAt       time.Time
	pollInterval time.Duration // between two polls
	retryDelay   time.Duration
	isOver       bool // the job is over, or another process runs it
}

// runJob runs a job until it is over, or ctx, which ends with the lease, ends.
func (r *Runner) runJob(ctx context.Context, id string) error {
	w, err := r.openJob(ctx, id)
	if err != nil || w == nil {
		return err
	}
	defer w.saveOnExit(ctx)
	for {
		wait, err := w.runStep(ctx)
		switch {
		case w.isOver:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			w.retryDelay = min(max(2*w.retryDelay, minRetry), maxRetry)
			r.Logger.Warn("replay: step failed, will retry", "delay", w.retryDelay, "err", err)
			wait = w.retryDelay
		default:
			w.retryDelay = 0
		}
		if wait > 0 && !clock.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// openJob reads a job as its last process left it. It returns nil if the job is over.
func (r *Runner) openJob(ctx context.Context, id string) (*jobRun, error) {
	row, err := r.Store.ReadReplayJob(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := &jobRun{Runner: r, etag: row.ETag, pollInterval: minPoll}
	if w.job, w.checkpoint, err = decodeJob(row); err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	over, found, err := r.jobs.readFinal(ctx, id)
	if err != nil {
		return nil, err
	}
	if found { // its process was killed before it removed the row of lane 0
		_, err = r.jobs.finishJob(ctx, over, r.Finished)
		return nil, err
	}
	w.lanes, w.isResumed = lanesOf(w.job.Filter, r.Store.Lanes), len(w.checkpoint.Next) > 0
	r.Logger.Info("replay: running a job")
	return w, nil
}

// runStep takes the next step of the job, and returns how long to wait before the one after it.
func (w *jobRun) runStep(ctx context.Context) (wait time.Duration, err error) {
	if w.checkpoint.Until == 0 {
		if err := w.countMatches(ctx); err != nil {
			return 0, err
		}
	}
	if len(w.checkpoint.Next) > 0 { // left by a crash or a failure
		if err := w.saveBatch(ctx); err != nil {
			return 0, err
		}
		return 0, w.replayBatch(ctx)
	}
	if err := w.pollOutcomes(ctx); err != nil {
		return 0, err
	}
	if reason := stopReason(&w.job); reason != "" {
		return 0, w.finishJob(ctx, Stopped, reason)
	}
	now := w.Now()
	if wait := w.nextBatchAt.Sub(now); wait > 0 && !w.deadIndex.isInProgress() {
		return min(wait, w.untilNextPoll(now)), nil
	}
	if err := w.selectBatch(ctx); err != nil {
		return 0, err
	}
	switch {
	case len(w.checkpoint.Next) > 0:
		return 0, w.replayBatch(ctx)
	case len(w.checkpoint.Open) > 0:
		return w.untilNextPoll(now), nil
	}
	return 0, w.finishJob(ctx, Done, "")
}

// untilNextPoll returns the time until the open messages are polled.
func (w *jobRun) untilNextPoll(now time.Time) time.Duration {
	if len(w.checkpoint.Open) == 0 {
		return maxPoll
	}
	return max(w.pollAt.Sub(now), 0)
}

// countMatches counts the job's messages, before it replays any.
func (w *jobRun) countMatches(ctx context.Context) error {
	// Times of death are by the holders' clocks. A limit by this process's clock could include
	// messages that the job replays and that die again.
	matched, until := int64(0), int64(1)
	err := w.eachDead(ctx, func(d lane.DeadRow) {
		if matchesFilter(w.job.Filter, d) {
			matched, until = matched+1, max(until, diedAtMicros(d))
		}
	})
	if err != nil {
		return err
	}
	w.job.Matched, w.checkpoint.Until = matched, until
	return w.saveCheckpoint(ctx)
}

// eachDead calls f for every dead message of the job's lanes.
func (w *jobRun) eachDead(ctx context.Context, f func(lane.DeadRow)) error {
	for _, number := range w.lanes {
		if err := eachDead(ctx, w.Log, number, 0, func(d lane.DeadRow) bool { f(d); return true }); err != nil {
			return err
		}
	}
	return nil
}

// selectBatch sets and saves the next batch. The batch stays empty if no message is left, or too
// many are open.
func (w *jobRun) selectBatch(ctx context.Context) error {
	room := min(maxOpen-len(w.checkpoint.Open), maxBatch)
	for room > 0 && w.checkpoint.Lane < len(w.lanes) {
		if w.deadIndex == nil {
			x, err := readIndex(ctx, w.Log, w.job.Filter, &w.checkpoint, w.lanes[w.checkpoint.Lane])
			if err != nil {
				return err
			}
			w.deadIndex = x
		}
		n := max(1, int(batchSpan*time.Duration(w.job.RatePerMinute)/time.Minute))
		if w.checkpoint.Next, w.checkpoint.Seq = w.deadIndex.nextBatch(min(n, room), room,
			w.checkpoint.Seq); len(w.checkpoint.Next) > 0 {
			w.isUnsaved = true
			return w.saveBatch(ctx)
		}
		w.deadIndex, w.checkpoint.Lane, w.checkpoint.Seq = nil, w.checkpoint.Lane+1, 0
	}
	return nil
}

// saveBatch saves the present batch, if it is not saved yet.
func (w *jobRun) saveBatch(ctx context.Context) error {
	if !w.isUnsaved {
		return nil
	}
	err := w.saveCheckpoint(ctx)
	w.isUnsaved = err != nil
	return err
}

// replayBatch replays the present batch. If it fails, the rest of the batch stays. Refused messages
// do not count towards the rate, because they cost the CMS nothing.
func (w *jobRun) replayBatch(ctx context.Context) error {
	// If the last batch ran ahead of the rate, start counting from the time it should have ended.
	began, before := laterOf(w.Now(), w.nextBatchAt), w.job.Replayed
	defer w.Wake(w.checkpoint.Next[0].lane) // a batch is of one lane
	for len(w.checkpoint.Next) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := w.replayMessage(ctx, w.checkpoint.Next[0]); err != nil {
			return err
		}
		w.checkpoint.Next = w.checkpoint.Next[1:]
		taken := time.Duration(w.job.Replayed-before) * time.Minute / time.Duration(w.job.RatePerMinute)
		w.nextBatchAt = began.Add(taken)
	}
	w.isResumed = false
	w.pollSoon()
	return w.saveCheckpoint(ctx)
}

// replayMessage requests the replay of one message.
func (w *jobRun) replayMessage(ctx context.Context, i deadMessage) error {
	e, err := w.Log.ReadMessage(ctx, i.lane, i.seq)
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.Stage != weir.Dead || e.Status().FinishedAt.UnixMicro() != i.diedAt {
		if w.isResumed { // requested by an earlier run that could not save it
			w.recordReplayed(i)
		}
		return nil
	}
	err = w.Log.Replay(ctx, e.Message.ID, w.job.Force)
	switch {
	case err == nil:
		w.recordReplayed(i)
	case weir.KindOf(err) == weir.Conflict:
		w.job.Refused++
	case weir.KindOf(err) != weir.NotFound:
		w.isResumed = true // the request may have been written
		return err
	}
	return nil
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *jobRun) recordReplayed(i deadMessage) {
	w.job.Replayed++
	w.checkpoint.addOpen(i)
	w.job.Waiting = int64(len(w.checkpoint.Open))
}
