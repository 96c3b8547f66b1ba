package drain

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/panics"
)

// Package residence says why lanes move, and when this process may keep and take them
// (residence.Permit). This file has the two sides of a move.
//
// A process with an invocation claims a lane that another process holds (Claim). A holder without
// an invocation hands the lane over. The claiming process takes the lane even if the lane has no
// work. Otherwise the former holder would take the lane again for the next message, and a lane
// whose messages come one at a time would never move.
//
// In a hand-over the holder finishes the attempt under way, commits all outcomes, and releases the
// lease. If the lane has work and no other process claims the lane, the former holder enqueues a
// ticket. The former holder then leaves the lane alone for the length of a lease, or until a
// message, a ticket or a sweep wakes its worker. Otherwise it would take the lane back before
// another process could.

const (
	// claimLength is how long a claim counts. It is longer than most attempts, because the holder
	// finishes the attempt under way before it hands the lane over. It is short, because a claim
	// keeps processes without an invocation away from the lane even after the claiming process has
	// died.
	claimLength = 15 * time.Second
	// A holder without an invocation enqueues tickets, so that an invocation comes. callAfter is
	// the time from the start of the session to the first ticket. callEvery is the time between two
	// such tickets.
	callAfter, callEvery = 2 * time.Second, 15 * time.Second
	// maxMoveDelay is the longest time for which a holder keeps a claimed lane because messages
	// become due.
	maxMoveDelay = 30 * time.Second
)

// tenure is the time for which a session may begin new work.
type tenure struct {
	open context.Context // ends with Drainer.openCtx, or when the lane is to be handed over
	end  func()
	// when this session first saw another process's claim; zero = no other process claims the lane
	claimedAt time.Time
}

// Held returns the numbers of the lanes that this process holds, in ascending order.
func (d *Drainer) Held() []int {
	d.mu.Lock()
	workers := slices.Collect(maps.Values(d.workers))
	d.mu.Unlock()
	var held []int
	for _, t := range workers {
		if t.isHolding() {
			held = append(held, t.number)
		}
	}

	slices.Sort(held)

	return held
}

// HandOver makes this process hand a lane over after the attempt under way. The call has no effect
// if this process does not drain the lane, or has no Permit. HandOver returns at once.
func (d *Drainer) HandOver(number int) {
	if t := d.workerOf(number); t != nil && d.Permit.IsHosted() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.endTenure != nil {
			t.endTenure()
		}
	}
}

// yieldsTo reports whether this process leaves a lane to another process that claims the lane.
func (d *Drainer) yieldsTo(c lane.Control) bool {
	if d.Permit.MayKeepLanes() {
		return false
	}
	claim, claimed := c.Claim(d.Now())
	return claimed && claim.By != d.me
}

// canMoveLane reports whether the holder may now hand the lane over to the process that claims the
// lane. A hand-over would delay due messages. So the holder keeps the lane while a message is due,
// or becomes due within lane.DueLead. But it hands the lane over when maxMoveDelay has passed since
// the session first saw the claim.
func (s *session) canMoveLane() bool {
	now := s.now()
	if s.tenure.claimedAt.IsZero() {
		s.tenure.claimedAt = now
	}

	due := s.due.nextDueAt()
	s.keys.eachFirst(func(k *keyState) {
		if k.isMixed { // the block may have messages that became due
			due = earlierOf(due, k.NextAt)
		}
	})

	return due.IsZero() || due.Sub(now) > lane.DueLead || now.Sub(s.tenure.claimedAt) > maxMoveDelay
}

// Claim claims a lane that another process holds, and watches the lane while the claim counts. This
// process takes the lane as soon as the lane is free, with or without work. Claim returns a Report
// with one of these states:
//
//   - Working: this process drains the lane now.
//   - Busy: the claim or ctx has ended, another process already claims the lane, or the claim could
//     not be written.
//   - Waiting: storage has failed, or the Drainer is closed (ErrClosed). The state is also Waiting
//     if another process has replaced the claim, and the lane's work has to wait.
//   - Idle: the lane is closed, or the Drainer was closed during the call. The state is also Idle
//     if another process has replaced the claim, and the lane has no work.
func (d *Drainer) Claim(ctx context.Context, number int) Report {
	t := d.workerOf(number)
	if t == nil {
		return Report{State: Waiting, Err: ErrClosed}
	}

	until := d.Now().Add(claimLength)
	if !t.claims.beginClaim(d.me, d.Now(), until) {
		return Report{State: Busy}
	}

	if err := d.Store.PutClaim(ctx, number, lane.Claim{By: d.me, Until: until}); err != nil {
		d.Log.Warn("drain: lane not claimed", "lane", number, "err", err)
		return Report{State: Busy}
	}

	limited, cancel := context.WithTimeout(ctx, claimLength)
	defer cancel()

	for {
		report := t.awaitLook(limited)
		if limited.Err() != nil {
			return Report{State: Busy}
		}

		if report.State != Busy {
			if report.State != Working {
				d.withdrawClaim(ctx, t)
			}
			return report
		}
	}
}

// withdrawClaim ends this process's claim to a lane, if there is one. It is called when this
// process has drained the lane, or no longer watches the lane. If the claim stayed, another process
// that appends a message would leave the lane to this process until the claim ends by itself.
func (d *Drainer) withdrawClaim(ctx context.Context, t *laneWorker) {
	until := d.Now()
	if !t.claims.endClaim(d.me, until) {
		return
	}

	if err := d.Store.PutClaim(ctx, t.number, lane.Claim{By: d.me, Until: until}); err != nil {
		d.Log.Warn("drain: claim not withdrawn", "lane", t.number, "err", err)
	}
}

// awaitLook returns the report of the next look at the lane. It returns earlier if this process
// drains the lane.
func (t *laneWorker) awaitLook(ctx context.Context) Report {
	t.mu.Lock()
	last := t.looks
	t.mu.Unlock()
	return t.reportAfter(ctx, last, true)
}

// claimTracker has the last claim to a lane, as far as this process knows. It is safe for
// concurrent use.
type claimTracker struct {
	mu    *sync.Mutex
	last  *lane.Claim // seen or written by this process; zero = none
	begun signal      // sent when this process claims the lane
}

func newClaimTracker() claimTracker {
	return claimTracker{mu: &sync.Mutex{}, last: &lane.Claim{}, begun: newSignal()}
}

// recordClaim records the claim that the control rows show. If the rows show no claim that still
// counts, and the last recorded claim is by another process, recordClaim forgets the recorded
// claim.
func (c claimTracker) recordClaim(me string, control lane.Control, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch claim, claimed := control.Claim(now); {
	case claimed:
		*c.last = claim
	case c.last.By != me: // a claim of this process stays, because it may be newer than these rows
		*c.last = lane.Claim{}
	}
}

// beginClaim records a claim of this process, unless a claim of another process still counts. It
// reports whether it has recorded the claim.
func (c claimTracker) beginClaim(me string, now, until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.By != me && c.last.Until.After(now) {
		return false
	}

	*c.last = lane.Claim{By: me, Until: until}
	c.begun.send()

	return true
}

// endClaim ends the claim of this process. It returns false if this process has no claim that still
// counts.
func (c claimTracker) endClaim(me string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.By != me || !c.last.Until.After(now) {
		return false
	}

	c.last.Until = now
	return true
}

// isBy reports whether the process with the name "me" has a claim that still counts.
func (c claimTracker) isBy(me string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.By == me && c.last.Until.After(now)
}

// waitWatching waits for d. If this process claims the lane, it waits for watchInterval at most. It
// returns early if this process begins a claim, or if the Drainer is closed.
func (t *laneWorker) waitWatching(d time.Duration) {
	if t.claims.isBy(t.drainer.me, t.drainer.Now()) {
		d = min(d, watchInterval)
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-t.claims.begun:
	case <-t.drainer.openCtx.Done():
	}
}

// leaveToOthers reports whether this process leaves a lane with work to other processes, because
// another process claims the lane or because this process may take no lanes. If so, the worker
// begins to watch the lane.
func (t *laneWorker) leaveToOthers(c lane.Control, now time.Time) bool {
	mayTake := t.drainer.Permit.MayTakeLanes()
	if mayTake && !t.drainer.yieldsTo(c) {
		return false
	}

	t.startWatching(c, now)
	if !mayTake {
		t.callOtherProcess(c, now)
	}

	return true
}

// callOtherProcess enqueues a ticket for a lane with work that this process does not take. The next
// ticket follows after callEvery, or at the next look if the lane got another holder or became
// free. If the queue refuses a ticket, the next look tries again.
func (t *laneWorker) callOtherProcess(c lane.Control, now time.Time) {
	w := &t.watch
	if w.calledFence == c.Tail.Fence && w.calledOpen == c.Tail.IsOpen &&
		now.Sub(w.calledAt) < callEvery {
		return
	}

	if err := t.drainer.Tickets.EnqueueNow(t.drainer.ctx, t.number); err != nil {
		t.drainer.Log.Warn("drain: lane not handed on", "lane", t.number, "err", err)
		return
	}

	w.calledFence, w.calledOpen, w.calledAt = c.Tail.Fence, c.Tail.IsOpen, now
}

// stepAside takes the place of the first look after a hand-over. It enqueues a ticket if the lane
// has work and no other process claims the lane. Its report makes this process leave the lane alone
// until a wake, or for the length of a lease.
func (t *laneWorker) stepAside() Report {
	t.hasHandedOver = false
	t.wake.take() // it came before the hand-over ended: the work is for the next holder
	t.enqueueIfWorkLeft()
	return Report{State: Waiting, Until: t.drainer.Now().Add(t.drainer.Lease)}
}

// callForInvocation enqueues tickets for a lane that this process drains, while no invocation stays
// with the lanes of this process. It does so in the background until ctx ends.
func (d *Drainer) callForInvocation(ctx context.Context, number int) {
	if !d.Permit.IsHosted() {
		return
	}

	d.wg.Go(func() {
		defer panics.Log(d.Log, "drain: call for an invocation")
		for wait := callAfter; clock.Sleep(ctx, wait); wait = callEvery {
			if d.Permit.MayKeepLanes() {
				continue
			}
			if err := d.Tickets.EnqueueNow(ctx, number); err != nil && ctx.Err() == nil {
				d.Log.Warn("drain: no invocation called for", "lane", number, "err", err)
			}
		}
	})
}
