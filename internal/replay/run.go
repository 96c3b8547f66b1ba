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
	// turnSpan is how many messages' time has its turn at once: as much as a crash makes
	// the next runner look at again.
	turnSpan = 2 * time.Second
	// maxTurn is that in messages.
	maxTurn = 50
	// maxOpen is how many messages may be replayed and not final.
	maxOpen = 500
	// What is open is looked at often while something happens, and seldom else.
	minLook, maxLook = 2 * time.Second, 30 * time.Second
	// After a failure the same is tried again, at first soon and then less often.
	minRetry, maxRetry = time.Second, 30 * time.Second
)

// run is a job that is being carried.
type run struct {
	*Runner
	job     Job
	place   place
	etag    storage.ETag
	lanes   []int  // concerned
	index   *index // of the present lane; nil = not read yet
	resumed bool   // of place.Next some may have been asked for already
	unsaved bool   // place.Next is not written down yet
	due     time.Time
	lookAt  time.Time
	every   time.Duration // between two looks
	retry   time.Duration
	over    bool // the job is, or it is in other hands
}

// run carries a job until it is over, or ctx, which is the lease's, ends.
func (r *Runner) run(ctx context.Context, id string) error {
	w, err := r.open(ctx, id)
	if err != nil || w == nil {
		return err
	}
	defer w.leave(ctx)
	for {
		wait, err := w.step(ctx)
		switch {
		case w.over:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			w.retry = min(max(2*w.retry, minRetry), maxRetry)
			r.Logger.Warn("replay: trying again", "delay", w.retry, "err", err)
			wait = w.retry
		default:
			w.retry = 0
		}
		if wait > 0 && !clock.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// open reads a job as its last runner left it; nil when it is over.
func (r *Runner) open(ctx context.Context, id string) (*run, error) {
	note, err := r.Store.Job(ctx, id)
	if storage.Is(err, storage.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := &run{Runner: r, etag: note.ETag, every: minLook}
	if w.job, w.place, err = fromRow(note); err != nil {
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	over, found, err := r.books.over(ctx, id)
	if err != nil {
		return nil, err
	}
	if found { // and whoever wrote that was killed before the note was gone
		_, err = r.books.finish(ctx, over, r.Finished)
		return nil, err
	}
	w.lanes, w.resumed = w.job.Filter.lanes(r.Store.Lanes), len(w.place.Next) > 0
	r.Logger.Info("replay: carrying a job")
	return w, nil
}

// step does what is to be done now, and tells how long there is nothing to do then.
func (w *run) step(ctx context.Context) (wait time.Duration, err error) {
	if w.place.Until == 0 {
		if err := w.count(ctx); err != nil {
			return 0, err
		}
	}
	if len(w.place.Next) > 0 { // left by a crash, or by a failure
		if err := w.saveTurn(ctx); err != nil {
			return 0, err
		}
		return 0, w.turn(ctx)
	}
	if err := w.look(ctx); err != nil {
		return 0, err
	}
	if reason := w.job.failing(); reason != "" {
		return 0, w.end(ctx, Stopped, reason)
	}
	now := w.Now()
	if wait := w.due.Sub(now); wait > 0 && !w.index.begun() {
		return min(wait, w.nextLook(now)), nil
	}
	if err := w.choose(ctx); err != nil {
		return 0, err
	}
	switch {
	case len(w.place.Next) > 0:
		return 0, w.turn(ctx)
	case len(w.place.Open) > 0:
		return w.nextLook(now), nil
	}
	return 0, w.end(ctx, Done, "")
}

// nextLook is how long what is open is not looked at.
func (w *run) nextLook(now time.Time) time.Duration {
	if len(w.place.Open) == 0 {
		return maxLook
	}
	return max(w.lookAt.Sub(now), 0)
}

// count counts what is meant, before anything of it is replayed.
func (w *run) count(ctx context.Context) error {
	// By the holders' clocks alone: by ours, what dies again soon could be one of those meant.
	matched, until := int64(0), int64(1)
	err := w.eachDead(ctx, func(d lane.DeadRow) {
		if w.job.Filter.matches(d) {
			matched, until = matched+1, max(until, diedAt(d))
		}
	})
	if err != nil {
		return err
	}
	w.job.Matched, w.place.Until = matched, until
	return w.save(ctx)
}

// eachDead calls f for all that is dead in the lanes concerned.
func (w *run) eachDead(ctx context.Context, f func(lane.DeadRow)) error {
	for _, number := range w.lanes {
		if err := eachDead(ctx, w.Log, number, 0, func(d lane.DeadRow) bool { f(d); return true }); err != nil {
			return err
		}
	}
	return nil
}

// choose says whose turn it is next; nobody's when all have had theirs, or too many are
// open.
func (w *run) choose(ctx context.Context) error {
	room := min(maxOpen-len(w.place.Open), maxTurn)
	for room > 0 && w.place.Lane < len(w.lanes) {
		if w.index == nil {
			x, err := readIndex(ctx, w.Log, w.job.Filter, &w.place, w.lanes[w.place.Lane])
			if err != nil {
				return err
			}
			w.index = x
		}
		n := max(1, int(turnSpan*time.Duration(w.job.RatePerMinute)/time.Minute))
		if w.place.Next, w.place.Seq = w.index.next(min(n, room), room, w.place.Seq); len(w.place.Next) > 0 {
			w.unsaved = true
			return w.saveTurn(ctx)
		}
		w.index, w.place.Lane, w.place.Seq = nil, w.place.Lane+1, 0
	}
	return nil
}

// saveTurn writes down whose turn it is, unless that is done.
func (w *run) saveTurn(ctx context.Context) error {
	if !w.unsaved {
		return nil
	}
	err := w.save(ctx)
	w.unsaved = err != nil
	return err
}

// turn replays those whose turn it is. Where that fails in the middle the rest stays. What
// is refused takes no time of the CMS, so the rate does not count it.
func (w *run) turn(ctx context.Context) error {
	began, before := later(w.Now(), w.due), w.job.Replayed // what went ahead of the rate is made up for
	defer w.Call(w.place.Next[0].lane)                     // they are all of one lane
	for len(w.place.Next) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := w.replay(ctx, w.place.Next[0]); err != nil {
			return err
		}
		w.place.Next = w.place.Next[1:]
		w.due = began.Add(time.Duration(w.job.Replayed-before) * time.Minute / time.Duration(w.job.RatePerMinute))
	}
	w.resumed = false
	w.lookSoon()
	return w.save(ctx)
}

// replay replays one message.
func (w *run) replay(ctx context.Context, i item) error {
	e, err := w.Log.ReadMessage(ctx, i.lane, i.seq)
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.Stage != weir.Dead || e.Status().FinishedAt.UnixMicro() != i.died {
		if w.resumed { // asked for, before that could be written down
			w.replayed(i)
		}
		return nil
	}
	err = w.Log.Replay(ctx, e.Message.ID, w.job.Force)
	switch {
	case err == nil:
		w.replayed(i)
	case weir.KindOf(err) == weir.Conflict:
		w.job.Refused++
	case weir.KindOf(err) != weir.NotFound:
		w.resumed = true // it may have been asked for
		return err
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *run) replayed(i item) {
	w.job.Replayed++
	w.place.opened(i)
	w.job.Waiting = int64(len(w.place.Open))
}
