package replay

import (
	"context"
	"fmt"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lane/jobrow"
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// portionSpan is the time that a portion takes at the job's rate. A longer portionSpan would
	// make portions larger. Then a process that resumes a job after a crash would have more
	// messages to check again.
	portionSpan = 2 * time.Second
	// maxPortion is the largest number of messages of a portion.
	maxPortion = 50
	// maxOpen is the largest number of open messages: messages that were replayed and are not final
	// yet.
	maxOpen = 500
	// Open messages are polled every minPoll while messages become final. Otherwise the interval
	// doubles after each poll, up to maxPoll.
	minPoll, maxPoll = 2 * time.Second, 30 * time.Second
	// A failed step is tried again after minRetry. If it fails again, the pause doubles, up to
	// maxRetry.
	minRetry, maxRetry = time.Second, 30 * time.Second
)

// jobRun is a job that this process runs, under the job's lease.
type jobRun struct {
	*Runner
	job        Job
	checkpoint checkpoint
	etag       storage.ETag
	lanes      []int      // lanes that can have messages of the job
	deadIndex  *deadIndex // of the present lane; nil = not read yet
	// perhaps replays of the portion in checkpoint.Next were already requested
	isResumed     bool
	isUnsaved     bool      // the portion in checkpoint.Next is not saved yet
	nextPortionAt time.Time // earliest time of the next portion, by the job's rate
	pollAt        time.Time // time of the next poll
	pollInterval  time.Duration
	retryDelay    time.Duration // pause if the last step failed; 0 = the last step succeeded
	isOver        bool          // the job is over, or another process runs it
}

// runJob runs a job until the job is over or ctx ends. ctx ends if the lease is lost.
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
			r.Logger.Warn("replay: step failed, will retry", "delay_ms",
				w.retryDelay.Milliseconds(), "err", err)
			wait = w.retryDelay

		default:
			w.retryDelay = 0
		}

		if wait > 0 && !clock.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// openJob reads a job with its stored progress. It returns nil if the job is over.
func (r *Runner) openJob(ctx context.Context, id string) (*jobRun, error) {
	row, err := jobrow.Read(ctx, r.Store, id)
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

	if found { // a process ended the job, but did not remove the row that openJob has read
		_, err = r.jobs.finishJob(ctx, over, r.Finished)
		return nil, err
	}

	w.lanes, w.isResumed = selectionOf(w.job.Filter).LanesOf(r.Store), len(w.checkpoint.Next) > 0
	r.Logger.Info("replay: running a job")

	return w, nil
}

// runStep takes the next step of the job, and returns the time to wait before the following step.
func (w *jobRun) runStep(ctx context.Context) (wait time.Duration, err error) {
	if w.checkpoint.Until == 0 {
		if err := w.countMatches(ctx); err != nil {
			return 0, err
		}
	}

	if len(w.checkpoint.Next) > 0 { // this portion is left over from a crash or a failed step
		if err := w.savePortion(ctx); err != nil {
			return 0, err
		}
		return 0, w.replayPortion(ctx)
	}

	if err := w.pollOutcomes(ctx); err != nil {
		return 0, err
	}

	if reason := stopReason(&w.job); reason != "" {
		return 0, w.finishJob(ctx, Stopped, reason)
	}

	now := w.Now()
	if wait := w.nextPortionAt.Sub(now); wait > 0 && !w.deadIndex.isInProgress() {
		return min(wait, w.untilNextPoll(now)), nil
	}

	if err := w.selectPortion(ctx); err != nil {
		return 0, err
	}

	switch {
	case len(w.checkpoint.Next) > 0:
		return 0, w.replayPortion(ctx)
	case len(w.checkpoint.Open) > 0:
		return w.untilNextPoll(now), nil
	}

	return 0, w.finishJob(ctx, Done, "")
}

// untilNextPoll returns the time until the next poll of the open messages, or maxPoll if no message
// is open.
func (w *jobRun) untilNextPoll(now time.Time) time.Duration {
	if len(w.checkpoint.Open) == 0 {
		return maxPoll
	}
	return max(w.pollAt.Sub(now), 0)
}

// countMatches counts the job's messages and saves the number, before the first replay.
func (w *jobRun) countMatches(ctx context.Context) error {
	// Until is the latest time of death of the counted messages. A message that dies after Until
	// does not belong to the job. The times of death come from the holders' clocks, and this
	// process's clock can be ahead of those clocks. If Until came from this process's clock, a
	// message that the job replays and that dies again could belong to the job a second time.
	matched, until := int64(0), int64(1)
	err := w.eachDead(ctx, func(d lists.DeadRow) {
		if selectionOf(w.job.Filter).HasDead(d) {
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
func (w *jobRun) eachDead(ctx context.Context, f func(lists.DeadRow)) error {
	for _, number := range w.lanes {
		if err := eachDead(ctx, w.Log, number, 0, func(d lists.DeadRow) bool { f(d); return true }); err != nil {
			return err
		}
	}
	return nil
}

// selectPortion sets and saves the next portion. The portion stays empty if no message is left, or
// maxOpen messages are open.
func (w *jobRun) selectPortion(ctx context.Context) error {
	room := min(maxOpen-len(w.checkpoint.Open), maxPortion)
	for room > 0 && w.checkpoint.Lane < len(w.lanes) {
		if w.deadIndex == nil {
			x, err := w.readIndex(ctx, w.job.Filter, &w.checkpoint, w.lanes[w.checkpoint.Lane])
			if err != nil {
				return err
			}
			w.deadIndex = x
		}

		n := max(1, int(portionSpan*time.Duration(w.job.RatePerMinute)/time.Minute))
		if w.checkpoint.Next, w.checkpoint.Seq = w.deadIndex.nextPortion(min(n, room), room,
			w.checkpoint.Seq); len(w.checkpoint.Next) > 0 {
			w.isUnsaved = true
			return w.savePortion(ctx)
		}

		w.deadIndex, w.checkpoint.Lane, w.checkpoint.Seq = nil, w.checkpoint.Lane+1, 0
	}

	return nil
}

func (w *jobRun) savePortion(ctx context.Context) error {
	if !w.isUnsaved {
		return nil
	}
	err := w.saveCheckpoint(ctx)
	w.isUnsaved = err != nil
	return err
}

// portionMessage is a message of the present portion with its row.
type portionMessage struct {
	deadMessage
	entry  *lane.Entry // as storage has it now; nil = retention has removed it
	isDead bool        // still dead, and with the same time of death as in deadMessage
}

// replayPortion requests the replays of the present portion, whose messages are all in one lane.
// After an error the messages without a result stay in the portion. Refused messages do not count
// towards the rate, because the CMS gets no request for them.
func (w *jobRun) replayPortion(ctx context.Context) error {
	portion, err := w.readPortion(ctx)
	if err != nil {
		return err
	}

	var requested []*lane.Entry
	for _, m := range portion {
		if m.isDead {
			requested = append(requested, m.entry)
		}
	}

	// If the previous portion had no room for all messages of its last key, this portion continues
	// with that key, and does not wait for nextPortionAt. The wait after this portion still counts
	// from nextPortionAt, so that the job keeps its rate on average.
	began, before := clock.Later(w.Now(), w.nextPortionAt), w.job.Replayed
	defer w.Wake(portion[0].lane)
	results, err := w.Log.ReplayMany(ctx, portion[0].lane, requested, w.job.Force)
	w.checkpoint.Next = w.checkpoint.Next[w.recordPortion(portion, results):]
	taken := time.Duration(w.job.Replayed-before) * time.Minute / time.Duration(w.job.RatePerMinute)
	w.nextPortionAt = began.Add(taken)
	if err != nil {
		w.isResumed = true // perhaps some requests were written
		return err
	}

	w.isResumed = false
	w.pollSoon()

	return w.saveCheckpoint(ctx)
}

func (w *jobRun) readPortion(ctx context.Context) ([]portionMessage, error) {
	portion := make([]portionMessage, len(w.checkpoint.Next))
	err := lane.ForEach(len(portion), func(i int) error {
		m := w.checkpoint.Next[i]
		e, err := w.Log.ReadMessage(ctx, m.lane, m.seq)
		if storage.Is(err, storage.NotFound) {
			portion[i] = portionMessage{deadMessage: m}
			return nil
		}

		if err == nil {
			portion[i] = portionMessage{m, e, e.Stage == weir.Dead &&
				e.Status().FinishedAt.UnixMicro() == m.diedAt}
		}

		return err
	})

	return portion, err
}

// recordPortion records the results of the requests: one result for each message that is still
// dead, in the order of the portion. After an error the last results are missing. recordPortion
// returns the number of messages before the first missing result.
func (w *jobRun) recordPortion(portion []portionMessage, results []error) (done int) {
	for _, m := range portion {
		switch {
		case m.isDead && len(results) == 0:
			return done
		case m.isDead:
			if results[0] == nil {
				w.recordReplayed(m.deadMessage)
			} else if weir.KindOf(results[0]) == weir.Conflict {
				w.job.Refused++
			}
			results = results[1:]

		case m.entry != nil &&
			w.isResumed: // an earlier try requested the replay, but did not save the result
			w.recordReplayed(m.deadMessage)
		}

		done++
	}

	return done
}

func (w *jobRun) recordReplayed(i deadMessage) {
	w.job.Replayed++
	w.checkpoint.addOpen(i)
	w.job.Waiting = int64(len(w.checkpoint.Open))
}
