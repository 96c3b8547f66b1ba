package drain

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
)

// A Functions host may end a process, without notice, as soon as none of its invocations is in flight. So before that a
// lane moves to a process that has an invocation:
//
//   - As long as an invocation stays with the lanes of a process (Attend), the process keeps the lanes.
//   - Without an invocation, the holder enqueues a ticket. The process that gets the ticket has an invocation, and
//     claims the lane (Claim). The holder hands the lane over to it. The other process takes the lane even if no
//     message waits in the lane at that moment. If it did not, the former holder would take the lane again for the
//     next message, and a lane whose messages come one at a time would never move.
//   - When the time of the last invocation is over, the process hands over the lanes that this invocation
//     stayed with (HandOver), whether or not another process claims them.
//
// A hand-over ends a session as a stop does: the holder finishes the attempt under way, commits all outcomes, and
// releases the lease. The former holder enqueues a ticket if the lane has work and no other process claims it. Then the
// former holder leaves the lane alone for the length of a lease, or until a message, a ticket or a sweep wakes it.
// Otherwise it would take the lane back before another process could.
//
// A host that the platform shuts down still sends HTTP requests to its process, and the platform ends both as soon as
// no invocation is in flight. So if no ticket has led to another invocation for long enough, the process takes no lane
// (StopTaking) until the host calls a queue or timer function again (MarkTriggered), or for takesNoneFor. Otherwise the
// process would become a holder without an invocation as soon as it files a message. While it takes no lane, it
// enqueues tickets instead.

const (
	// claimLength is how long a claim counts. It is longer than most attempts, because the holder finishes the attempt
	// under way first. It is short, because a claim keeps other processes without an invocation from the lane, even if
	// the process that claimed the lane has died.
	claimLength = 15 * time.Second
	// A holder without an invocation enqueues a ticket, so that an invocation comes. It enqueues the first ticket when
	// its session has lasted for callAfter, lingering included. callEvery is the time between two such tickets.
	callAfter, callEvery = 2 * time.Second, 15 * time.Second
	// takesNoneFor limits the effect of StopTaking. It is longer than the life of a host that the platform is shutting
	// down. The limit exists because a host's queue and timer listeners may have failed: its process then delivers
	// again after takesNoneFor.
	takesNoneFor = 10 * time.Minute
	// maxMoveDelay is the longest time for which a holder keeps a claimed lane because messages become due.
	maxMoveDelay = 30 * time.Second
)

// invocationTracker is the part of a Drainer that follows invocations and claims.
type invocationTracker struct {
	me             string       // the name under which this process claims lanes
	isAttended     atomic.Bool  // an invocation stays with the lanes of this process
	takesNoneUntil atomic.Int64 // nanoseconds since 1970; 0 = this process takes lanes
}

// tenure is the time for which a session may begin new work.
type tenure struct {
	open      context.Context // ends with Drainer.openCtx, or when the lane is to be handed over
	end       func()
	claimedAt time.Time // when this session first saw the present claim of another process; zero = there is none
}

// Attend is called when an invocation begins to stay with the lanes of this process.
func (d *Drainer) Attend() { d.isAttended.Store(true) }

// Yield is called when no invocation stays with the lanes of this process, or the last one ends soon. From then on this
// process hands a lane over to another process that claims it.
func (d *Drainer) Yield() { d.isAttended.Store(false) }

// StopTaking is called when the platform seems to be shutting the host down, because no ticket has led to another
// invocation. Until MarkTriggered is called, for takesNoneFor at most, this process takes no lane. It keeps the lanes
// that it holds. If Hosted is false, the call has no effect.
func (d *Drainer) StopTaking() { d.takesNoneUntil.Store(d.Now().Add(takesNoneFor).UnixNano()) }

// MarkTriggered is called before each invocation of a queue or timer function. A host that the platform is shutting
// down makes no such invocation. So after the call this process takes lanes again.
func (d *Drainer) MarkTriggered() { d.takesNoneUntil.Store(0) }

// takesNoLane reports whether this process leaves lanes with work to others.
func (d *Drainer) takesNoLane() bool {
	until := d.takesNoneUntil.Load()
	return d.Hosted && until != 0 && d.Now().UnixNano() < until
}

// Held returns the lanes that this process holds, in order.
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

// HandOver makes this process hand a lane over after the attempt under way, if it drains the lane and runs under a
// Functions host. HandOver returns at once.
func (d *Drainer) HandOver(number int) {
	if t := d.workerOf(number); t != nil && d.Hosted {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.endTenure != nil {
			t.endTenure()
		}
	}
}

// yieldsTo reports whether another process claims a lane and this process leaves the lane to it.
func (d *Drainer) yieldsTo(c lane.Control) bool {
	if !d.Hosted || d.isAttended.Load() {
		return false
	}
	claim, claimed := c.Claim(d.Now())
	return claimed && claim.By != d.me
}

// canMoveLane reports whether the lane may be handed over to the process that claims it. A hand-over would delay a
// message that is to be sent at its due time. So the holder waits while a message is due or becomes due within
// lane.DueLead, but not longer than maxMoveDelay after the session first saw the claim.
func (s *session) canMoveLane() bool {
	now := s.now()
	if s.tenure.claimedAt.IsZero() {
		s.tenure.claimedAt = now
	}
	due := s.due.nextDueAt()
	s.keys.eachFirst(func(k *keyState) {
		if k.isMixed { // it may have messages that became due
			due = earlierOf(due, k.NextAt)
		}
	})
	return due.IsZero() || due.Sub(now) > lane.DueLead || now.Sub(s.tenure.claimedAt) > maxMoveDelay
}

// Claim claims a lane that another process holds, and watches the lane closely for as long as the claim counts: this
// process takes the lane as soon as it is free, with or without work. Claim returns Working as soon as this process
// drains the lane, and Busy if the claim or ctx ends first. It returns Busy at once if another process has claimed the
// lane, or if the claim cannot be written. It returns Waiting after a failure of storage, and Idle if the lane is
// closed. It may also return Waiting or Idle if the claim of another process has replaced this one.
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

// withdrawClaim ends this process's claim to a lane, if there is one. It is called when this process has drained the
// lane, or no longer watches it. Otherwise another process that files a message would leave the lane to this process
// until the claim is over.
func (d *Drainer) withdrawClaim(ctx context.Context, t *laneWorker) {
	until := d.Now()
	if !t.claims.endClaim(d.me, until) {
		return
	}
	if err := d.Store.PutClaim(ctx, t.number, lane.Claim{By: d.me, Until: until}); err != nil {
		d.Log.Warn("drain: claim not withdrawn", "lane", t.number, "err", err)
	}
}

// awaitLook waits for the report of the next look, or until this process drains the lane.
func (t *laneWorker) awaitLook(ctx context.Context) Report {
	t.mu.Lock()
	round := t.round
	t.mu.Unlock()
	return t.reportAfter(ctx, round, true)
}

// claimTracker has the last claim to a lane that this process knows. It is safe for concurrent use.
type claimTracker struct {
	mu    *sync.Mutex
	last  *lane.Claim   // seen or written by this process; zero = none
	begun chan struct{} // gets a value when this process claims the lane
}

func newClaimTracker() claimTracker {
	return claimTracker{mu: &sync.Mutex{}, last: &lane.Claim{}, begun: make(chan struct{}, 1)}
}

// recordClaim records the claim in force that the control rows show. If they show none, recordClaim forgets the claim
// of another process.
func (c claimTracker) recordClaim(me string, control lane.Control, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch claim, claimed := control.Claim(now); {
	case claimed:
		*c.last = claim
	case c.last.By != me: // the other process withdrew its claim; a claim of this process may be newer than these rows
		*c.last = lane.Claim{}
	}
}

// beginClaim records a claim of this process, unless the claim of another process is in force. It reports whether it
// has recorded the claim.
func (c claimTracker) beginClaim(me string, now, until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.By != me && c.last.Until.After(now) {
		return false
	}
	*c.last = lane.Claim{By: me, Until: until}
	select {
	case c.begun <- struct{}{}:
	default:
	}
	return true
}

// endClaim ends the claim of this process, and reports whether it was in force until now.
func (c claimTracker) endClaim(me string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.By != me || !c.last.Until.After(now) {
		return false
	}
	c.last.Until = now
	return true
}

// isBy reports whether the claim in force is that of the process with the name "me".
func (c claimTracker) isBy(me string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.By == me && c.last.Until.After(now)
}

// waitWatching waits for d, or until this process begins a claim. While this process claims the lane, waitWatching
// waits for watchInterval at most.
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

// leaveToOthers reports whether this process does not take a lane that has work: another process has claimed the lane,
// or this process takes no lane (StopTaking). If so, the worker begins to watch the lane.
func (t *laneWorker) leaveToOthers(c lane.Control, now time.Time) bool {
	takesNone := t.drainer.takesNoLane()
	if !takesNone && !t.drainer.yieldsTo(c) {
		return false
	}
	t.startWatching(c, now)
	if takesNone {
		t.callOtherProcess(c, now)
	}
	return true
}

// callOtherProcess enqueues a ticket for a lane that has work, and that this process does not take. If the lane got
// another holder or became free since the last ticket, callOtherProcess does so at once, and otherwise once in
// callEvery. If storage refuses the ticket, the next look tries again.
func (t *laneWorker) callOtherProcess(c lane.Control, now time.Time) {
	w := &t.watch
	if w.calledFence == c.Tail.Fence && w.calledOpen == c.Tail.IsOpen && now.Sub(w.calledAt) < callEvery {
		return
	}
	if err := t.drainer.Tickets.EnqueueNow(t.drainer.ctx, t.number); err != nil {
		t.drainer.Log.Warn("drain: lane not handed on", "lane", t.number, "err", err)
		return
	}
	w.calledFence, w.calledOpen, w.calledAt = c.Tail.Fence, c.Tail.IsOpen, now
}

// stepAside enqueues a ticket for a lane that this process has handed over, if the lane has work and no other process
// claims it. This process then leaves the lane to others until a wake, for the length of a lease at most.
func (t *laneWorker) stepAside() Report {
	t.hasHandedOver = false
	select {
	case <-t.wake: // a message was filed before the hand-over ended: the ticket is for that message, too
	default:
	}
	t.enqueueIfWorkLeft()
	return Report{State: Waiting, Until: t.drainer.Now().Add(t.drainer.Lease)}
}

// callForInvocation enqueues tickets for a lane that this process drains without an invocation,
// until ctx ends. It returns at once. Each ticket is a new one, because another instance may have
// taken the earlier ones before the lane had to move.
func (d *Drainer) callForInvocation(ctx context.Context, number int) {
	if !d.Hosted {
		return
	}
	d.wg.Go(func() {
		for wait := callAfter; clock.Sleep(ctx, wait); wait = callEvery {
			if d.isAttended.Load() {
				continue
			}
			if err := d.Tickets.EnqueueNow(ctx, number); err != nil && ctx.Err() == nil {
				d.Log.Warn("drain: no invocation called for", "lane", number, "err", err)
			}
		}
	})
}
