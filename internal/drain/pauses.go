package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Calendar says when nothing is to be sent. It must be quick.
type Calendar interface {
	// At says whether a moment is closed, why, and until when.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// pausesGood is how long may be acted upon what was read of the operator's pauses. With a
// read each second they are always known that well, but for after a long attempt.
const pausesGood = lookEvery + 500*time.Millisecond

// pauses are the operator's, as a run last read them.
type pauses struct {
	known time.Time            // when that read was begun
	lane  time.Time            // the end of the lane's; zero = it is not paused
	keys  map[string]time.Time // the ends of single keys', by key hash
}

// learnPauses takes in what the control rows say of pauses.
func (r *run) learnPauses(c lane.Control, asked time.Time) {
	r.pauses = pauses{known: asked}
	for _, p := range c.Pauses(asked) {
		if p.Key == "" {
			r.pauses.lane = p.Ends()
			continue
		}
		if r.pauses.keys == nil {
			r.pauses.keys = map[string]time.Time{}
		}
		r.pauses.keys[lane.KeyHash(p.Key)] = p.Ends()
	}
}

// keyPaused says whether a key's pause is in force.
func (r *run) keyPaused(keyHash string, now time.Time) bool {
	return r.pauses.keys[keyHash].After(now)
}

// nextOf is when the first of a block may go: not before its key's pause ends.
func (r *run) nextOf(b *lane.KeyBlock) time.Time { return later(b.NextAt, r.pauses.keys[b.KeyHash]) }

// opensAt is the moment before which nothing is sent.
func (r *run) opensAt(now time.Time) time.Time {
	return r.calendarOpens(later(r.gate.opensAt(), later(r.pauses.lane, now)))
}

// calendarOpens gives the first moment from at on at which the calendar is open.
func (d *Drainer) calendarOpens(at time.Time) time.Time {
	if d.Calendar != nil {
		if closed, _, until := d.Calendar.At(at); closed {
			return until
		}
	}
	return at
}

// pauseReason says for people why nothing of a lane is sent at a moment; empty = it may be.
func (d *Drainer) pauseReason(c lane.Control, now time.Time) string {
	if p, paused := c.LanePause(now); paused {
		return "an operator has paused it: " + p.Reason
	}
	if c.Tail.PausedUntil.After(now) {
		return "the CMS is unavailable"
	}
	if d.Calendar != nil {
		if closed, reason, _ := d.Calendar.At(now); closed {
			return "the calendar is closed: " + reason
		}
	}
	return ""
}

// mayGo says whether nothing has been paused meanwhile that keeps a message from being sent.
// What is known of the pauses has to be fresh for that: it waits until it is.
func (r *run) mayGo(ctx context.Context, e *lane.Entry) (bool, error) {
	for r.Now().Sub(r.pauses.known) > pausesGood {
		if err := r.awaitLook(ctx); err != nil || r.open.Err() != nil {
			return false, err
		}
	}
	now := r.Now()
	return !r.opensAt(now).After(now) && !r.keyPaused(e.KeyHash(), now), nil
}

// stopped is the result of an attempt that was not begun for a pause.
func (r *run) stopped() weir.Result {
	return weir.Result{Outcome: weir.OutcomeNone, Reason: "it was paused", StartedAt: r.Now()}
}

// shelve puts a message of a paused key from the log into its key's line, or, where its
// contract lets the others go ahead, into one of its own: so it does not keep the log.
func (r *run) shelve(e *lane.Entry) {
	b := r.blocks[e.KeyHash()]
	if b == nil {
		b = &lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(), NextAt: r.lineUp()}
		if e.Message.Skip {
			b.LogWaitsFrom, b.IsParked = e.Seq(), true // it holds back nothing; but what comes behind it waits until it was tried
		}
		r.blocks[b.ID] = b
	}
	// The line is read from storage once this is written: it stands in the order of the log.
	b.From, b.Mixed = 0, true
	r.holdBack(e, b)
}

// lineUp gives a moment behind those of all that was put into a line before without having
// been tried.
func (r *run) lineUp() time.Time {
	if r.placed.IsZero() {
		r.placed = r.finishedAt()
	}
	r.placed = r.placed.Add(time.Microsecond)
	return r.inLine()
}

// inLine returns when the message that was put into a line last may go: at the time in its place,
// unless that was written by a former holder's clock, far ahead.
func (r *run) inLine() time.Time { return limitMoment(r.placed, r.Now().Add(maxSkew)) }
