package simulation_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// This file has the checks of the requests that reach the CMS.

// beginRequest is called when a request reaches the CMS.
func (c *checker) beginRequest(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.laneOf(r.id.Lane)
	c.w.trace.addLine("%s sends seq %d of lane %d, key %s, fence %d, attempt %d (%d)", r.p.name, r.id.Seq, r.id.Lane,
		r.key, r.fence, r.attempt, r.status)
	c.counts.Requests++
	until, stood := r.p.trustedUntil(c.store.LeaseName(r.id.Lane))
	if !r.sent.Before(until) && !stood {
		c.addViolation("untrusted", "%s sent under a lease that it could trust until %s ago, and did not stand still",
			r.p.name, r.sent.Sub(until))
	}
	c.recordWrite(r, r.fence < l.fence)
	if !r.isRead {
		c.checkOverlap(l, r)
		l.active = append(l.active, r)
	}
	if r.id.Seq > int64(len(l.log)) || l.log[r.id.Seq-1].id != r.id {
		c.addViolation("lost", "%s sent a message that was never filed: %+v", r.p.name, r.id)
		return
	}
	c.checkMoved(l, l.log[r.id.Seq-1], r)
	c.checkDue(l, l.log[r.id.Seq-1], r)
	c.checkPaused(l, l.log[r.id.Seq-1], r)
	if r.fence < l.fence { // the sender stood still, or an earlier check of this request has failed
		c.counts.LateWriters++
		return
	}
	c.checkOrder(l, l.log[r.id.Seq-1], r)
	c.checkNotEarly(l, l.log[r.id.Seq-1], r)
}

// checkNotEarly checks that no message is sent before the time of its next attempt, and none during a pause of its
// lane. The times are by the sender's own clock.
func (c *checker) checkNotEarly(l *laneState, f *filed, r *request) {
	now := r.p.nowAtMost()
	until := l.last.Tail.PausedUntil
	if until.After(now) && (l.last.Tail.ProbedBelow == 0 || l.hadTurn(f)) {
		c.addViolation("early", "%s sent seq %d of lane %d, which pauses for another %s", r.p.name, f.id.Seq, f.id.Lane,
			until.Sub(now))
	}
	if f.now != "" && f.now != weir.Retrying || f.final != "" {
		return // the checker has read the message's row since the last change of the row
	}
	if st, err := c.store.Messages().Status(context.Background(), f.id); err == nil && st.Stage == weir.Retrying &&
		st.NextAttemptAt.After(now) {
		c.addViolation("early", "%s sent seq %d of lane %d, which was to wait for another %s", r.p.name, f.id.Seq,
			f.id.Lane, st.NextAttemptAt.Sub(now))
	}
}

// checkHandedOver checks the uncommitted deliveries of the last holder. A holder that has cleared Open must have
// committed all deliveries that it knew of. No holder may leave more than 64 uncommitted deliveries.
func (c *checker) checkHandedOver(l *laneState, number int) {
	left := 0
	for _, f := range l.log {
		if f.taken && f.under == l.fence && !c.stageOf(f).Final() {
			left++
		}
	}
	if left > 64 || (left > 0 && !l.last.Tail.IsOpen) {
		c.addViolation("repeat", "the holder of lane %d under fence %d left %d deliveries uncommitted (open: %v)",
			number, l.fence, left, l.last.Tail.IsOpen)
	}
}

// checkOverlap checks requests of a lane that are in the CMS at the same time. That is allowed only if the earlier
// holder stood still past the end of its trust, because the fence then makes storage refuse the commit of that holder.
// A holder whose clock jumped may end its own settle time too early here. The real program measures that time by the
// monotonic clock, which does not jump, but the simulation has no such clock.
func (c *checker) checkOverlap(l *laneState, r *request) {
	for _, o := range l.active {
		former, later := o, r
		if former.fence > later.fence {
			former, later = r, o
		}
		if former.p == later.p && former.p.slot.jumpedSince(former.sent) {
			c.findWrite(former).late = true
			continue
		}
		until, stood := former.p.trustedUntil(c.store.LeaseName(r.id.Lane))
		if former.fence == later.fence || !stood || time.Now().Before(until) {
			c.addViolation("overlap", "seq %d of %s (fence %d) and seq %d of %s (fence %d) are in the CMS at once",
				former.id.Seq, former.p.name, former.fence, later.id.Seq, later.p.name, later.fence)
		}
		c.findWrite(former).late = true
	}
}

// checkOrder checks that a request keeps the order of its key, that only uncommitted deliveries are repeated, and
// further rules. The request's sender has the highest fence.
func (c *checker) checkOrder(l *laneState, f *filed, r *request) {
	if f.discarded {
		c.addViolation("discarded", "%s sent seq %d of lane %d after it was discarded", r.p.name, f.id.Seq, f.id.Lane)
	}
	if stage := c.stageOf(f); stage.Final() {
		c.addViolation("repeat", "%s sent seq %d of lane %d, which is %s", r.p.name, f.id.Seq, f.id.Lane, stage)
	}
	if f.taken {
		c.counts.Repeats++
	}
	if f.taken && f.under == r.fence {
		c.addViolation("repeat", "%s sent seq %d of lane %d again, which it knew to be delivered", r.p.name, f.id.Seq,
			f.id.Lane)
	}
	c.checkContent(f, r)
	if r.attempt-f.base > c.w.attempts {
		c.addViolation("attempts", "attempt %d of %d for seq %d", r.attempt-f.base, c.w.attempts, f.id.Seq)
	}
	for _, o := range l.log {
		if o.key != f.key || o == f || o.waits {
			continue
		}
		earlier := o.placeInOrder() < f.placeInOrder()
		switch {
		case f.edit && o.edit:
			// A message that is replayed goes before messages whose delivery was not committed because of a crash.
			if s := c.stageOf(o); o.taken && !o.forgotten && o.version.Newer(f.version) && s != weir.Dead &&
				s != weir.Cancelled && s != weir.Discarded &&
				(f.replays == 0 || s == weir.Delivered) {
				c.addViolation("superseded", "seq %d of key %s was sent after seq %d, which is newer", f.id.Seq, f.key,
					o.id.Seq)
			}
		case f.skip:
			// The CMS may have refused the connection for the attempt of a retrying message, so the CMS has not seen
			// it.
			if s := c.stageOf(o); earlier && !o.begun && s != weir.Retrying && !s.Final() {
				c.addViolation("order", "seq %d of key %s was sent before seq %d was tried", f.id.Seq, f.key, o.id.Seq)
			}
		case earlier && !c.stageOf(o).Final():
			if c.isOutdated(l, o) {
				o.passed = true
			} else {
				c.addViolation("order", "seq %d of key %s was sent while seq %d waits", f.id.Seq, f.key, o.id.Seq)
			}
		// There is one exception: a message that was passed because a newer version had been delivered. An operator may
		// have that version forgotten, and the holder may die before it commits the later message. Then the next holder
		// sends the passed message after all, and afterwards repeats the later one.
		case !earlier && o.begun && f.replays == 0 && !f.passed:
			c.addViolation("order", "seq %d of key %s was sent again after seq %d", f.id.Seq, f.key, o.id.Seq)
		}
	}
	c.checkPunctual(l, f, r)
	c.checkCrowd(l, f, r)
	f.begun = true
}

// endRequest is called when the CMS has finished with a request.
func (c *checker) endRequest(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.laneOf(r.id.Lane)
	l.busy = time.Now()
	c.findWrite(r).ended = l.busy
	for i, o := range l.active {
		if o == r {
			l.active = append(l.active[:i], l.active[i+1:]...)
			break
		}
	}
	c.w.trace.addLine("the CMS is done with seq %d of lane %d for %s", r.id.Seq, r.id.Lane, r.p.name)
}

// noteAnswered is called when a process gets the answer to its request.
func (c *checker) noteAnswered(r *request, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordTurn(r)
	if r.status == 200 {
		f := c.laneOf(r.id.Lane).log[r.id.Seq-1]
		f.taken = true
		c.findWrite(r).whole, c.findWrite(r).torn = whole, !whole
		if whole { // if only a part of the answer arrived, the client may or may not accept it
			f.under = max(f.under, r.fence)
		}
	}
}

// turns is the checker's record of a lane's pause for refused messages.
type turns struct {
	pausedUnder int64 // fence of the holder that began the last pause
	pausedAt    time.Time
	judgedAt    time.Time // time of the last answer other than 403; all messages may be sent after it
}

// turn is the last refusal of a message.
type turn struct {
	refusedUnder int64
	refusedAt    time.Time
}

// recordTurn is called when a process gets an answer. If the answer is 403, recordTurn records the refusal of the
// message; otherwise it records the answer for the lane.
func (c *checker) recordTurn(r *request) {
	l := c.laneOf(r.id.Lane)
	if r.status != 403 {
		l.judgedAt = time.Now()
		return
	}
	l.log[r.id.Seq-1].turn = turn{r.fence, time.Now()}
}

// recordPause is called after a transaction, with the new control rows. At that time l.last still has the old ones.
func (l *laneState) recordPause(now lane.Control) {
	if now.Tail.PausedUntil.After(l.last.Tail.PausedUntil) {
		l.pausedUnder, l.pausedAt = now.Tail.Fence, time.Now()
	}
}

// hadTurn reports whether the pause holds a message back: the holder that began the pause knew that the CMS had refused
// the message, and the message is below ProbedBelow in tail.
func (l *laneState) hadTurn(f *filed) bool {
	isKnown := f.refusedUnder == l.pausedUnder && f.refusedAt.Before(l.pausedAt) && f.id.Seq < l.last.Tail.ProbedBelow
	return isKnown && l.judgedAt.Before(l.pausedAt) && f.replays == 0
}

// checkContent checks that the CMS gets the right body of a message: the edited body, or without an edit the submitted
// one. It also checks that the request has the number of the right replay.
func (c *checker) checkContent(f *filed, r *request) {
	if f.key == recurringKey {
		if !slices.Contains(c.w.listOccurrences(), r.body) {
			c.addViolation("content", "%s sent seq %d of lane %d for no occurrence: %.60q", r.p.name, f.id.Seq,
				f.id.Lane, r.body)
		}
		return
	}
	n, err := numberOf(r.body)
	switch {
	case c.w.chains.isOn && r.replay == f.replays:
		return // checkItems checks the content in worlds of chains
	case r.replay != f.replays:
		c.addViolation("content", "%s sent seq %d of lane %d under the name of replay %d, which is %d", r.p.name,
			f.id.Seq, f.id.Lane, r.replay, f.replays)
	case err != nil || n >= len(c.expected) || r.body != cmp.Or(f.edited, string(c.expected[n].message.Body)):
		c.addViolation("content", "%s sent seq %d of lane %d with a body of %d bytes that was never submitted: %.40q",
			r.p.name, f.id.Seq, f.id.Lane, len(r.body), r.body)
	case c.expected[n].key != f.key || c.expected[n].key != r.key, f.number >= 0 && f.number != n:
		c.addViolation("content", "%s sent submission %d as seq %d of lane %d, which is %d", r.p.name, n, f.id.Seq,
			f.id.Lane, f.number)
	}
	f.number = n
}
