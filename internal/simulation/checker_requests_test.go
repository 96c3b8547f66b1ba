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
	c.w.trace.addLine("%s sends seq %d of lane %d, key %s, fence %d, attempt %d (%d)", r.p.name,
		r.id.Seq, r.id.Lane, r.key, r.fence, r.attempt, r.status)
	c.counts.Requests++
	until, stood := r.p.trustedUntil(c.store.LeaseName(r.id.Lane))
	if !r.sent.Before(until) && !stood {
		c.addViolation("untrusted",
			"%s sent under a lease that it could trust until %s ago, and did not stand still",
			r.p.name, r.sent.Sub(until))
	}

	c.recordWrite(r, r.fence < l.fence)
	c.noteBrakedSender(r)

	if !r.isRead {
		c.checkOverlap(l, r)
		c.checkOneWriter(r)
		l.active = append(l.active, r)
	}

	if r.id.Seq > int64(len(l.log)) || l.log[r.id.Seq-1].id != r.id {
		c.addViolation("lost", "%s sent a message that was never filed: %+v", r.p.name, r.id)
		return
	}

	c.checkMoved(l, l.log[r.id.Seq-1], r)
	c.checkDue(l, l.log[r.id.Seq-1], r)
	c.checkPaused(l, l.log[r.id.Seq-1], r)
	c.checkContract(l.log[r.id.Seq-1], r)

	if r.fence < l.fence { // the sender stalled, or a check above has reported a violation
		c.counts.LateWriters++
		return
	}

	c.checkOrder(l, l.log[r.id.Seq-1], r)
	c.checkNotEarly(l, l.log[r.id.Seq-1], r)
}

// checkNotEarly checks that a message is not sent before its next attempt is due. If the lane
// pauses because of failures at the CMS, and the pause holds the message back, the message must
// wait for the end of the pause. All times are compared with the sender's own clock.
func (c *checker) checkNotEarly(l *laneState, f *filed, r *request) {
	now := r.p.nowAtMost()
	until := l.last.Tail.PausedUntil
	if until.After(now) && (l.last.Tail.ProbedBelow == 0 || l.hadTurn(f)) {
		c.addViolation("early", "%s sent seq %d of lane %d, which pauses for another %s", r.p.name,
			f.id.Seq, f.id.Lane, until.Sub(now))
	}

	if f.now != "" && f.now != weir.Retrying || f.final != "" {
		return // the checker knows the present stage, which is not retrying
	}

	if st, err := c.store.Messages().Status(context.Background(), f.id); err == nil &&
		st.Stage == weir.Retrying &&
		st.NextAttemptAt.After(now) {
		c.addViolation("early", "%s sent seq %d of lane %d, which was to wait for another %s",
			r.p.name, f.id.Seq, f.id.Lane, st.NextAttemptAt.Sub(now))
	}
}

// checkHandedOver checks the former holder when a lane is taken. A holder that has cleared IsOpen
// in tail must have committed all deliveries that it knew of. Any other holder may leave at most 64
// deliveries uncommitted.
func (c *checker) checkHandedOver(l *laneState, number int) {
	left := 0
	for _, f := range l.log {
		if f.taken && f.under == l.fence && !c.stageOf(f).Final() {
			left++
		}
	}

	if left > 64 || (left > 0 && !l.last.Tail.IsOpen) {
		c.addViolation("repeat",
			"the holder of lane %d under fence %d left %d deliveries uncommitted (open: %v)",
			number, l.fence, left, l.last.Tail.IsOpen)
	}
}

// checkOverlap checks a new request against the requests of the lane that the CMS still works on.
// Two requests may overlap only if the holder with the lower fence stalled until its trust in the
// lease had ended. Storage then refuses the commits of that holder.
//
// Two requests of the same process may also overlap if the process's clock jumped, because the
// process can then end the settle time too early. The real program measures the settle time by the
// monotonic clock. The simulation has no such clock.
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
			c.addViolation("overlap",
				"seq %d of %s (fence %d) and seq %d of %s (fence %d) are in the CMS at once",
				former.id.Seq, former.p.name, former.fence, later.id.Seq, later.p.name, later.fence)
		}

		c.findWrite(former).late = true
	}
}

// checkOrder checks a request whose sender has the highest fence. Among other rules, the request
// must keep the order of its key. It may repeat a delivery only if that delivery was not committed.
func (c *checker) checkOrder(l *laneState, f *filed, r *request) {
	if f.discarded {
		c.addViolation("discarded", "%s sent seq %d of lane %d after it was discarded", r.p.name,
			f.id.Seq, f.id.Lane)
	}

	if stage := c.stageOf(f); stage.Final() {
		c.addViolation("repeat", "%s sent seq %d of lane %d, which is %s", r.p.name, f.id.Seq,
			f.id.Lane, stage)
	}

	if f.taken {
		c.counts.Repeats++
	}

	if f.taken && f.under == r.fence {
		c.addViolation("repeat", "%s sent seq %d of lane %d again, which it knew to be delivered",
			r.p.name, f.id.Seq, f.id.Lane)
	}

	c.checkContent(f, r)
	f.noteAttempt(r.attempt)

	if r.attempt-f.base > c.w.attempts && !c.mayTryMore(f) {
		c.addViolation("attempts", "attempt %d of %d for seq %d", r.attempt-f.base,
			c.w.attempts, f.id.Seq)
	}

	for _, o := range l.log {
		if o.item != f.item || o == f || o.waits {
			continue
		}

		earlier := o.placeInOrder() < f.placeInOrder()
		switch {
		case f.edit && o.edit && f.key == o.key:
			// A replayed message is allowed to be sent after the newer message o if a crash
			// prevented the commit of o's delivery.
			if s := c.stageOf(o); o.taken && !o.forgotten && o.version.Newer(f.version) &&
				s != weir.Dead &&
				s != weir.Cancelled && s != weir.Discarded &&
				(f.replays == 0 || s == weir.Delivered) {
				c.addViolation("superseded",
					"seq %d of key %s was sent after seq %d, which is newer", f.id.Seq, f.key,
					o.id.Seq)
			}

		case f.skip:
			// If o is retrying, its attempt may have failed before the request reached the CMS. If
			// the sender's settings lack the contract of o, no other message of the key waits for
			// o. Replayed messages have no order: o was tried before it became dead.
			if s := c.stageOf(o); earlier && !o.begun && o.replays == 0 && s != weir.Retrying &&
				!s.Final() &&
				r.p.store.Contracts.Has(o.contract) {
				c.addViolation("order", "seq %d of key %s was sent before seq %d was tried",
					f.id.Seq, f.key, o.id.Seq)
			}

		case earlier && !c.stageOf(o).Final():
			if c.isOutdated(l, o) {
				o.passed = true
			} else {
				c.addViolation("order", "seq %d of key %s was sent while seq %d waits", f.id.Seq,
					f.key, o.id.Seq)
			}

		// If f was not replayed, f must not be sent after the later message o. But f.passed allows
		// it: o was sent first, because a version newer than f had been delivered. After that, an
		// operator can ask the holder to forget the newer version. If the holder dies before it
		// commits the delivery of o, the next holder sends f, and then sends o again.
		case !earlier && o.begun && f.replays == 0 && !f.passed:
			c.addViolation("order", "seq %d of key %s was sent again after seq %d", f.id.Seq,
				f.key, o.id.Seq)
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

	c.w.trace.addLine("the CMS is done with seq %d of lane %d for %s", r.id.Seq,
		r.id.Lane, r.p.name)
}

// noteAnswered is called when a process gets the answer to its request.
func (c *checker) noteAnswered(r *request, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recordTurn(r)
	c.noteAsked(c.laneOf(r.id.Lane), r)
	f := c.laneOf(r.id.Lane).log[r.id.Seq-1]
	f.isRejected = f.isRejected || isRejection(r.status)
	if r.status == 200 {
		f.taken = true
		c.findWrite(r).whole, c.findWrite(r).torn = whole, !whole
		if whole { // the checker does not know whether the client accepts an answer that breaks off
			f.under = max(f.under, r.fence)
		}
	}
}

// noteVerdict is called when a process gets an answer to a step that writes, by which the CMS
// rejects the message.
func (c *checker) noteVerdict(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.laneOf(r.id.Lane).log[r.id.Seq-1].isRejected = true
}

// turns is the checker's record of the last pause of a lane. Only pauses that a holder began
// because of failures at the CMS count, not the pauses of operators.
type turns struct {
	pausedUnder int64 // fence of the holder that began the last pause, or made it longer
	pausedAt    time.Time
	judgedAt    time.Time // time of the lane's last answer with a status other than 403
}

// turn records the last answer with status 403 that a message got from the CMS.
type turn struct {
	refusedUnder int64
	refusedAt    time.Time
}

// recordTurn is called when a process gets an answer. If the status is 403, recordTurn records the
// refusal of the message. Otherwise it records the time of the answer in the lane.
func (c *checker) recordTurn(r *request) {
	l := c.laneOf(r.id.Lane)
	if r.status != 403 {
		l.judgedAt = time.Now()
		return
	}
	l.log[r.id.Seq-1].turn = turn{r.fence, time.Now()}
}

// recordPause compares the control rows after a transaction with the earlier ones in l.last. It
// records that a pause has begun or was made longer.
func (l *laneState) recordPause(now lane.Control) {
	if now.Tail.PausedUntil.After(l.last.Tail.PausedUntil) {
		l.pausedUnder, l.pausedAt = now.Tail.Fence, time.Now()
	}
}

// hadTurn reports whether the lane's pause must hold a message back. That is so if all of these are
// true:
//
//   - The holder that began the pause knew that the CMS had refused the message with 403.
//   - The message is below ProbedBelow in tail, and was not replayed.
//   - Since the pause began, the CMS has answered no request of the lane with a status other than
//     403.
func (l *laneState) hadTurn(f *filed) bool {
	isKnown := f.refusedUnder == l.pausedUnder && f.refusedAt.Before(l.pausedAt) &&
		f.id.Seq < l.last.Tail.ProbedBelow
	return isKnown && l.judgedAt.Before(l.pausedAt) && f.replays == 0
}

// checkContent checks that the CMS gets the edited body of a message, or the submitted body if
// there was no edit. It also checks the number of the replay in the request.
func (c *checker) checkContent(f *filed, r *request) {
	if f.key == recurringKey {
		if !slices.Contains(c.w.listOccurrences(), r.body) {
			c.addViolation("content", "%s sent seq %d of lane %d for no occurrence: %.60q",
				r.p.name, f.id.Seq, f.id.Lane, r.body)
		}
		return
	}

	if f.key == runsKey {
		if r.body != runBody {
			c.addViolation("content", "%s sent seq %d of lane %d for no run: %.60q", r.p.name,
				f.id.Seq, f.id.Lane, r.body)
		}
		return
	}

	n, err := numberOf(r.body)
	switch {
	case c.w.chains.isOn && r.replay == f.replays:
		return // in runs with chains, checkItems checks the content
	case r.replay != f.replays:
		c.addViolation("content",
			"%s sent seq %d of lane %d under the name of replay %d, which is %d", r.p.name,
			f.id.Seq, f.id.Lane, r.replay, f.replays)

	case err != nil || n >= len(c.expected) ||
		r.body != cmp.Or(f.edited, string(c.expected[n].message.Body)):
		c.addViolation("content",
			"%s sent seq %d of lane %d with a body of %d bytes that was never submitted: %.40q",
			r.p.name, f.id.Seq, f.id.Lane, len(r.body), r.body)

	case c.expected[n].key != f.key || c.expected[n].key != r.key, f.number >= 0 && f.number != n:
		c.addViolation("content", "%s sent submission %d as seq %d of lane %d, which is %d",
			r.p.name, n, f.id.Seq, f.id.Lane, f.number)
	}

	f.number = n
}
