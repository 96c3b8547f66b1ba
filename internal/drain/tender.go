package drain

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage"
)

const (
	// watchInterval is how often a lane that another holds is looked at (a little under a second,
	// so that a lane handed over in order is taken up within one), for one lease
	// length; then the pauses grow, as long as the holder is seen to commit, up to a third
	// of the lease.
	watchInterval = 800 * time.Millisecond
	// fresh is how long a look at a waiting or busy lane is good for: rings in between
	// cost nothing.
	fresh = time.Second
	// lookRetry is the pause after storage could not be asked.
	lookRetry = time.Second
)

// tender looks after one lane in this process: it looks, takes the lease, drains,
// watches, waits for due times, and rests when there is nothing to do. It lives as long
// as the Drainer; at rest it costs a goroutine and nothing else.
type tender struct {
	d      *Drainer
	number int
	wake   chan struct{}
	gate   *gate // of this process, over all its runs
	offers *offers
	held   bool  // this process has held the lane
	gave   bool  // and has just handed it over
	watch  watch // of the lane while another holds it
	claims claims
	done   chan struct{} // closed when the tender's goroutine has ended

	watched *watched // keys, as this process knew them when it held the lane last
	nonce   string   // under which that was

	mu        sync.Mutex
	endTenure func()        // hands the lane over in order; nil = this process does not drain it
	round     int           // looks begun
	shown     int           // the look that report is of
	report    Report        // of the last look
	at        time.Time     // when it was made
	settled   chan struct{} // closed and replaced at each report
}

func newTender(d *Drainer, number int) *tender {
	return &tender{d: d, number: number, gate: newGate(d.Backoff, d.Settle, d.Patience), offers: &offers{},
		wake: make(chan struct{}, 1), settled: make(chan struct{}), done: make(chan struct{}), claims: newClaims()}
}

// watch is what is known of a lane that another process holds.
type watch struct {
	since time.Time    // zero = not watching
	tail  storage.ETag // as last seen
	alive bool         // the holder has committed between the last two looks
}

func (t *tender) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// join waits for the report of a look that begins after now, unless a fresh one says
// that the lane is busy elsewhere or paused: then there is nothing a look could change. A
// lane that only waits for a due time is looked at, for it may have got a message since.
func (t *tender) join(ctx context.Context) Report {
	t.mu.Lock()
	known := t.shown == t.round && (t.report.Paused || t.report.State == Busy) && t.d.Now().Sub(t.at) < fresh
	if known {
		defer t.mu.Unlock()
		return t.report
	}
	round := t.round
	t.mu.Unlock()
	return t.reportAfter(ctx, round, false)
}

// awaitStanding waits for a report of how the lane stands: of a look that begins after now, or without
// one if this process drains the lane (and looks at it once more afterwards), watches it, or the
// lane is paused.
func (t *tender) awaitStanding(ctx context.Context) Report {
	t.mu.Lock()
	round, report := t.round, t.report
	known := t.shown == t.round && (report.State == Busy || report.Paused && t.d.Now().Sub(t.at) < fresh)
	t.mu.Unlock()
	if known {
		return report
	}
	return t.reportAfter(ctx, round, true)
}

// reportAfter waits for the report of a look after the given round. With working it also returns
// as soon as this process drains the lane.
func (t *tender) reportAfter(ctx context.Context, round int, working bool) Report {
	t.nudge() // the holder, too: another instance may just have filed a message
	for {
		t.mu.Lock()
		report, shown, holding, settled := t.report, t.shown, t.endTenure != nil, t.settled
		t.mu.Unlock()
		switch {
		case working && holding:
			return Report{State: Working}
		case shown > round:
			return report
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return Report{State: Working}
		case <-t.done: // not before: an invocation that waits for the drain shows the host that it goes on
			return Report{State: Idle}
		}
	}
}

func (t *tender) publish(r Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report, t.at, t.shown = r, t.d.Now(), t.round
	t.tellSettled()
}

// setHolding notes that this process drains the lane, and how it hands it over; nil = it does not.
func (t *tender) setHolding(endTenure func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endTenure = endTenure
	t.tellSettled()
}

// tellSettled wakes those who wait for news of the lane. The caller holds mu.
func (t *tender) tellSettled() {
	close(t.settled)
	t.settled = make(chan struct{})
}

// tend is the tender's goroutine.
func (t *tender) tend() {
	defer close(t.done)
	for t.d.open.Err() == nil {
		t.mu.Lock()
		t.round++
		t.mu.Unlock()
		report := t.look()
		if report.State != Busy {
			t.watch = watch{}
		}
		if report.State == Working {
			continue // drained: look once more
		}
		t.publish(report)
		t.rest(report)
	}
	t.handOn()
}

// handOn rings for a lane that this process leaves with work, so that another instance
// takes it up before the sweep would.
func (t *tender) handOn() {
	if !t.held {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.d.ctx), closeTimeout)
	defer cancel()
	control, err := t.d.Store.ReadControl(ctx, t.number)
	if err == nil && control.HasWork(t.d.Now()) && !(t.d.open.Err() == nil && t.d.yieldsTo(control)) {
		err = t.d.Tickets.EnqueueNow(ctx, t.number)
	}
	if err != nil {
		t.d.Log.Warn("drain: lane not handed on", "lane", t.number, "err", err)
	}
}

// look is one round: is there work, may it be sent, is the lane free? When all are so it
// drains, and says Working when it has.
func (t *tender) look() Report {
	if t.gave {
		return t.stepAside()
	}
	ctx, asked := t.d.ctx, t.d.Now()
	control, err := t.d.Store.ReadControl(ctx, t.number)
	if err != nil {
		return t.trouble(err)
	}
	now := t.d.Now()
	at, work := control.NextWorkAt(now)
	if work && !control.HasRequests() {
		at = t.d.calendarOpens(at)
	}
	switch {
	case !work:
		return Report{State: Idle}
	case at.After(now):
		reason := t.d.pauseReason(control, now)
		return Report{State: Waiting, Until: at, Paused: reason != "", Reason: reason}
	}
	t.claims.noteClaim(t.d.me, control, now)
	if t.holderCommits(control.Tail) {
		return Report{State: Busy}
	}
	if t.d.yieldsTo(control) {
		t.beginWatch(control, now)
		return Report{State: Busy}
	}
	l, err := lease.Acquire(ctx, lease.Config{Leases: t.d.Leases, Length: t.d.Lease, Now: t.d.Now, Log: t.d.Log}, t.d.Store.LeaseName(t.number))
	switch {
	case errors.Is(err, lease.ErrBusy):
		t.d.Observer.Lease(t.number, LeaseBusy)
		t.beginWatch(control, now)
		return Report{State: Busy}
	case err != nil:
		return t.trouble(err)
	}
	t.held = true
	open, endTenure := context.WithCancel(t.d.open)
	defer endTenure()
	t.setHolding(endTenure)
	defer t.setHolding(nil)
	t.d.Observer.Lease(t.number, LeaseTaken)
	err = t.hold(l, control, asked, tenure{open, endTenure})
	t.gave = open.Err() != nil
	lost := errors.Is(err, lane.ErrFenced) || l.Context().Err() != nil && ctx.Err() == nil
	t.d.Observer.Lease(t.number, map[bool]LeaseEvent{true: LeaseLost, false: LeaseReleased}[lost])
	if releaseErr := l.Release(ctx); releaseErr != nil && ctx.Err() == nil {
		t.d.Log.Warn("drain: lease not released", "lane", t.number, "err", releaseErr)
	}
	if err != nil && ctx.Err() == nil {
		return t.trouble(err)
	}
	return Report{State: Working}
}

// beginWatch begins to watch the lane, unless this process does already.
func (t *tender) beginWatch(c lane.Control, now time.Time) {
	if t.watch.since.IsZero() {
		t.watch = watch{since: now, tail: c.Tail.ETag}
	}
}

// holderCommits says of a lane that is being watched whether its holder has committed since
// the last look: then its lease need not be tried. So a holder that dies is noticed within
// two pauses, and from then on the lease is tried each second until it runs out.
func (t *tender) holderCommits(tail lane.Tail) bool {
	t.watch.alive = !t.watch.since.IsZero() && tail.IsOpen && tail.ETag != t.watch.tail
	t.watch.tail = tail.ETag
	return t.watch.alive
}

// trouble is storage that does not answer, or a lease that was lost: try again soon.
func (t *tender) trouble(err error) Report {
	if t.d.ctx.Err() == nil {
		t.d.Log.Warn("drain: interrupted", "lane", t.number, "err", err)
	}
	return Report{State: Waiting, Until: t.d.Now().Add(lookRetry + t.d.jitter(lookRetry)), Err: err}
}

// rest waits for the next reason to look.
func (t *tender) rest(r Report) {
	until := min(r.Until.Sub(t.d.Now()), forever)
	switch {
	case r.Err != nil:
		clock.Sleep(t.d.open, until)
	case r.State == Busy:
		t.restWatching(watchPause(t.watch.alive, t.d.Now().Sub(t.watch.since), t.d.Lease))
	case r.State == Waiting && r.Paused:
		// Rings of a paused lane must cost next to nothing: one look a second at most.
		clock.Sleep(t.d.open, min(fresh, until))
		t.await(until - fresh)
	case r.State == Waiting:
		t.await(until)
	default:
		t.await(forever)
	}
}

// forever is longer than anything waits; the sweep looks each minute.
const forever = 24 * time.Hour

// await waits for a wake, for at most d. A wake that is there already is used up.
func (t *tender) await(d time.Duration) {
	select {
	case <-t.wake:
		return
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.wake:
	case <-timer.C:
	case <-t.d.open.Done():
	}
}

// watchPause is the pause between two looks at a lane that another holds: a second while
// its lease may run out any moment, then growing. Two of the longest are less than a lease,
// so a crash is noticed before the crashed holder's lease has run out.
func watchPause(alive bool, watched, length time.Duration) time.Duration {
	if !alive || watched < length+watchInterval {
		return watchInterval
	}
	return min(watchInterval+(watched-length)/4, length/3)
}
