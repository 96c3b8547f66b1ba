package drain

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/panics"
	"weir/internal/storage"
)

const (
	// watchInterval is the time between two looks at a lane that another process holds. It is under
	// a second, so that this process takes the lane within a second after the holder has handed the
	// lane over. While the holder commits, the time between looks grows (nextWatchDelay).
	watchInterval = 800 * time.Millisecond
	// A report that is younger than reportFreshFor may replace a new look. joinDrain returns such a
	// report if the lane is paused or busy. awaitStatus returns such a report if the lane is
	// paused. A paused lane gets at most one look in reportFreshFor, even if the lane is woken.
	reportFreshFor = time.Second
	// lookRetry is the shortest pause after a failed look. The longest pause is twice lookRetry.
	lookRetry = time.Second
)

// laneWorker does the work of this process on one lane: it reads the lane's state (a look), holds
// the lane, or watches the lane while another process holds it. A Drainer has at most one
// laneWorker for each lane.
type laneWorker struct {
	drainer *Drainer
	number  int
	wake    signal
	breaker *breaker // shared by all sessions of this process on the lane
	appends *recentAppends
	hasHeld bool // this process has held the lane
	// this process has just handed the lane over; the next look calls stepAside
	hasHandedOver bool
	watch         foreignHolder // used while another process holds the lane
	claims        claimTracker
	done          chan struct{} // closed when the worker's goroutine has ended

	tracked *trackedKeys // the tracked keys of this process's last session on the lane; nil = none
	nonce   string       // tail's nonce in this process's last session

	laneReports
}

// laneReports has the results of the looks at a lane, for callers that wait for a report.
type laneReports struct {
	mu sync.Mutex
	// ends the session and hands the lane over; nil = this process does not drain the lane
	endTenure    func()
	looks        int       // number of looks that have begun
	reportedLook int       // the number (see looks) of the look that led to the report
	report       Report    // result of the last look that did not lead to a drain
	reportedAt   time.Time // when the report was published
	// closed and replaced at each report, and when a drain begins or ends
	reported chan struct{}
}

func newLaneWorker(d *Drainer, number int) *laneWorker {
	breaker := newBreaker(d.Backoff, d.Settle, d.Patience)
	breaker.planPause = func(now time.Time, delay time.Duration) time.Duration {
		plan := pausePlan{number, breaker.pauseCause, delay, breaker.isOverload}
		return d.outlook.planPause(plan, now)
	}

	return &laneWorker{drainer: d, number: number, appends: &recentAppends{room: d.memory.appends},
		breaker: breaker,
		wake:    newSignal(), done: make(chan struct{}), claims: newClaimTracker(),
		laneReports: laneReports{reported: make(chan struct{})}}
}

// foreignHolder describes another process that holds the lane, as far as this process knows.
type foreignHolder struct {
	watchedSince time.Time    // zero = not watching
	tail         storage.ETag // tail's ETag as last seen
	isCommitting bool         // the holder has committed between the last two looks

	calledAt    time.Time // when callOtherProcess last enqueued a ticket; zero = never
	calledFence int64     // the fence at calledAt
	calledOpen  bool      // whether IsOpen was set in tail at calledAt
}

// joinDrain returns the report of a look that begins after this call. If the last report is fresh
// and says that the lane is busy or paused, joinDrain returns the last report, because another look
// so soon is of no use. If the lane only waits for a due time, another look is of use, because the
// lane may have a new message.
func (t *laneWorker) joinDrain(ctx context.Context) Report {
	t.mu.Lock()
	isBlocked := t.report.Paused || t.report.State == Busy
	known := t.reportedLook == t.looks && isBlocked && t.isReportFresh()
	if known {
		defer t.mu.Unlock()
		return t.report
	}

	last := t.looks
	t.mu.Unlock()

	return t.reportAfter(ctx, last, false)
}

// awaitStatus returns the report of a look that begins after this call, except in three cases:
//
//   - This process drains the lane: awaitStatus returns Working at once, because the worker looks
//     at the lane again after the drain.
//   - Another process holds or claims the lane: awaitStatus returns the last report.
//   - The lane is paused, and the last report is fresh: awaitStatus returns the last report.
func (t *laneWorker) awaitStatus(ctx context.Context) Report {
	t.mu.Lock()
	last, report := t.looks, t.report
	known := t.reportedLook == t.looks &&
		(report.State == Busy && !report.isLeft || report.Paused && t.isReportFresh())
	t.mu.Unlock()
	if known {
		return report
	}

	return t.reportAfter(ctx, last, true)
}

// isReportFresh reports whether the last report is younger than reportFreshFor. The caller holds
// mu.
func (t *laneWorker) isReportFresh() bool {
	return t.drainer.Now().Sub(t.reportedAt) < reportFreshFor
}

// reportAfter waits for the report of a look with a higher number than "last". If "working" is
// true, it returns Working as soon as this process drains the lane. It also returns Working if ctx
// ends first, and Idle if the worker ends first.
func (t *laneWorker) reportAfter(ctx context.Context, last int, working bool) Report {
	// also while this process holds the lane: another instance may just have appended a message
	t.wake.send()
	for {
		t.mu.Lock()
		report, shown, holding, settled := t.report, t.reportedLook, t.endTenure != nil, t.reported
		t.mu.Unlock()

		switch {
		case working && holding:
			return Report{State: Working}
		case shown > last:
			return report
		}

		select {
		case <-settled:
		case <-ctx.Done():
			return Report{State: Working}
		case <-t.done: // not openCtx.Done(), because the caller's invocation must last until the drain has ended
			return Report{State: Idle}
		}
	}
}

func (t *laneWorker) publishReport(r Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report, t.reportedAt, t.reportedLook = r, t.drainer.Now(), t.looks
	t.signalReport()
}

// setHolding records that this process drains the lane, with a function that hands the lane over.
// If endTenure is nil, this process no longer drains the lane.
func (t *laneWorker) setHolding(endTenure func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endTenure = endTenure
	t.signalReport()
}

// isHolding reports whether this process drains the lane.
func (t *laneWorker) isHolding() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endTenure != nil
}

// signalReport wakes the callers that wait for a report. The caller holds mu.
func (t *laneWorker) signalReport() {
	close(t.reported)
	t.reported = make(chan struct{})
}

// runLoop is the worker's goroutine.
func (t *laneWorker) runLoop() {
	defer close(t.done)
	panics.Repeat(t.drainer.openCtx, t.drainer.Log, "drain: lane", t.lookUntilClosed)
}

// lookUntilClosed looks at the lane and waits for the next reason to look, until openCtx ends.
func (t *laneWorker) lookUntilClosed() {
	for t.drainer.openCtx.Err() == nil {
		t.mu.Lock()
		t.looks++
		t.mu.Unlock()
		report := t.lookSafely()
		if report.State != Busy {
			t.watch = foreignHolder{}
		} else {
			t.appends.forgetAll()
		}

		if report.State == Working {
			continue // the lane was drained: look once more
		}

		t.publishReport(report)
		t.waitForNextLook(report)
	}

	t.enqueueIfWorkLeft()
}

// enqueueIfWorkLeft enqueues a ticket if this process leaves the lane with work. So another
// instance can take the lane before the next sweep. While the Drainer is open, enqueueIfWorkLeft
// enqueues no ticket if another process claims the lane, because that process needs no ticket. When
// the Drainer closes, the claim does not matter.
func (t *laneWorker) enqueueIfWorkLeft() {
	if !t.hasHeld {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.drainer.ctx), closeTimeout)
	defer cancel()
	control, err := t.drainer.Store.ReadControl(ctx, t.number)
	isClaimed := t.drainer.openCtx.Err() == nil && t.drainer.yieldsTo(control)
	if err == nil && control.HasWork(t.drainer.Now()) && !isClaimed {
		err = t.drainer.Tickets.EnqueueNow(ctx, t.number)
	}

	if err != nil {
		t.drainer.Log.Warn("drain: lane not handed on", "lane", t.number, "err", err)
	}
}

// lookSafely calls lookOnce. A panic of lookOnce costs this lane a failed look: the other lanes of
// the process go on.
func (t *laneWorker) lookSafely() (report Report) {
	err := panics.Catch(func() error { report = t.lookOnce(); return nil })
	if err != nil {
		return t.reportFailure(err)
	}
	return report
}

// lookOnce looks at the lane. If the lane is free and has work that may be done now, lookOnce takes
// the lane, drains it, and then returns Working.
func (t *laneWorker) lookOnce() Report {
	if t.hasHandedOver {
		return t.stepAside()
	}

	ctx, asked := t.drainer.ctx, t.drainer.Now()
	control, err := t.drainer.Store.ReadControl(ctx, t.number)
	if err != nil {
		return t.reportFailure(err)
	}

	now := t.drainer.Now()
	if t.drainer.outlook.isPauseOver(control.Tail) {
		control.Tail.PausedUntil = time.Time{}
	}

	if t.drainer.brakes.hasOpened(control.Tail.Brakes) {
		control.Tail.NextDueAt = now // the refused messages are sent again
	}

	holderFence := control.Tail.HolderFence()
	at, work := control.NextWorkAt(now)
	if work && !control.HasRequests() {
		at = t.drainer.calendarOpensAt(at)
	}

	t.claims.recordClaim(t.drainer.me, control, now)

	switch {
	case t.claims.isBy(t.drainer.me, now) &&
		!control.Tail.IsClosed: // a claimed lane is taken even without work
	case t.isAbandoned(control.Tail, now): // so is a lane that a crashed holder left
	case !work:
		return Report{State: Idle, HolderFence: holderFence}
	case at.After(now):
		reason := t.drainer.explainPause(control, now)
		return Report{State: Waiting, Until: at, Paused: reason != "", Reason: reason,
			HolderFence: holderFence, hasBrakes: len(control.Tail.Brakes) > 0,
			isForCMS: control.Tail.PauseCause != "" && control.Tail.PausedUntil.After(now)}
	}

	if t.hasHolderCommitted(control.Tail) {
		return Report{State: Busy, HolderFence: holderFence}
	}

	if t.leaveToOthers(control, now) {
		return Report{State: Busy, HolderFence: holderFence,
			isLeft: !t.drainer.Permit.MayTakeLanes()}
	}

	cfg := lease.Config{Leases: t.drainer.Leases, Length: t.drainer.Lease, Now: t.drainer.Now,
		Log: t.drainer.Log}
	l, err := lease.Acquire(ctx, cfg, t.drainer.Store.LeaseName(t.number))
	switch {
	case errors.Is(err, lease.ErrBusy):
		t.drainer.Observer.Lease(t.number, LeaseBusy)
		t.startWatching(control, now)
		return Report{State: Busy, HolderFence: holderFence}
	case err != nil:
		return t.reportFailure(err)
	}

	t.hasHeld = true
	open, endTenure := context.WithCancel(t.drainer.openCtx)
	defer endTenure()
	t.setHolding(endTenure)
	defer t.setHolding(nil)
	t.drainer.Observer.Lease(t.number, LeaseTaken)

	// If Permit.StopTaking was called during this look, no session begins. If it is called later,
	// HandOver can end the session.
	if !t.drainer.Permit.MayTakeLanes() {
		endTenure()
	} else {
		// After a panic the session hands nothing over, because its state in memory may be wrong.
		// The next session takes it for a crashed holder: it waits for the settle time, and reads
		// all anew.
		err = panics.Catch(func() error {
			return t.holdLane(l, control, asked, &tenure{open: open, end: endTenure})
		})
	}

	t.hasHandedOver = open.Err() != nil
	t.drainer.withdrawClaim(ctx, t)
	lost := errors.Is(err, lane.ErrFenced) || l.Context().Err() != nil && ctx.Err() == nil
	t.drainer.Observer.Lease(t.number,
		map[bool]LeaseEvent{true: LeaseLost, false: LeaseReleased}[lost])
	if releaseErr := l.Release(ctx); releaseErr != nil && ctx.Err() == nil {
		t.drainer.Log.Warn("drain: lease not released", "lane", t.number, "err", releaseErr)
	}

	if err != nil && ctx.Err() == nil {
		return t.reportFailure(err)
	}

	return Report{State: Working}
}

// isAbandoned reports whether the lane's last holder seems to have crashed at a lane without work:
// tail shows a holder, and no attempt for longer than a lease. A live holder leaves such a lane
// within seconds. The worker then takes the lane, so that the settle time of that holder passes
// before the next message comes, and hands it over. If the holder lives all the same, its lease is
// busy.
func (t *laneWorker) isAbandoned(tail lane.Tail, now time.Time) bool {
	attemptedAt := clock.Later(tail.LastDeliveredAt, tail.LastErrorAt)
	return tail.IsOpen && !tail.IsClosed && now.Sub(attemptedAt) > t.drainer.Lease+maxSkew
}

// predecessor has the state in which the former holder left the lane.
type predecessor struct {
	hasCrashed bool   // the former holder left IsOpen set in tail
	nonce      string // the nonce that the former holder wrote into tail

	hasPauseOver bool // a recovery has ended the lane's pause for the CMS
}

// holdLane raises the fence, and runs a session until the session has nothing to send or must end.
// When the lease can no longer be trusted, the lease's context ends, and the request in flight is
// cut off.
func (t *laneWorker) holdLane(l *lease.Lease, seen lane.Control, askedAt time.Time,
	of *tenure) error {
	ctx, cancel := context.WithCancelCause(l.Context())
	defer cancel(nil)
	d := t.drainer
	writer, former, err := t.raiseFence(ctx, seen.Tail)
	if err != nil {
		return err
	}

	d.callForInvocation(ctx, t.number)
	tracked := t.tracked
	if former.nonce != t.nonce {
		tracked = nil // another process has held the lane in between
	}

	t.tracked = nil

	// The last commit may come after the end of ctx, so the committer has a context of its own.
	commits, stopCommits := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCommits()
	c := startCommitter(commits, writer, d.Now, func(err error) { cancel(err) }, t.onCommitted)
	tail := writer.Tail()
	scope := laneScope{store: d.Store, lane: t.number, fence: tail.Fence, now: d.Now,
		log: d.Log.With("lane", t.number), observer: d.Observer}
	defer d.memory.beginSession()()
	s := newSession(t, scope, of, c, tail, l.Trusted)
	history := s.attempter.history
	history.tracked = tracked
	err = s.load(ctx, tail, former.hasCrashed)
	if former.hasPauseOver {
		t.breaker.endPause()
	}

	if seen.HasUntried(d.Now()) {
		t.breaker.letUntriedPass(d.Now())
	}

	s.applyControl(seen, askedAt)

	if err == nil {
		t.tracked, t.nonce = history.tracked, tail.Nonce
		err = s.run(ctx)
	}

	if err != nil && ctx.Err() == nil {
		s.recordInterruption(err)
	}

	err = errors.Join(err, s.handOver(ctx, stopCommits))
	t.breaker.recordDelivered(writer.Tail())

	return err
}

// onCommitted notifies the callers that wait until messages of the change are final. It also wakes
// the sender of events.
func (t *laneWorker) onCommitted(ch *lane.Change) {
	t.drainer.completions.notifyFinal(t.number, ch.FinalSeqs())
	if ch.HasEvents() && t.drainer.Store.Notifier != nil {
		t.drainer.Store.Notifier.WakeOutbox(t.number)
	}
}

// raiseFence raises the fence. If IsOpen is set in tail, the former holder has crashed or lost the
// lane. raiseFence then counts a crash, and begins the settle time, because the CMS may still work
// on a request of that holder.
func (t *laneWorker) raiseFence(ctx context.Context, seen lane.Tail) (w *lane.Writer,
	former predecessor, err error) {
	d := t.drainer
	w, err = d.Store.RaiseFence(ctx, t.number, rand.Text(), seen, func(tail *lane.Tail) {
		// RaiseFence calls this function again if storage refused the last write. So the next line
		// clears the values
		former = predecessor{} // of an earlier call, whose tail was out of date
		if tail.IsOpen {
			tail.Crashes++
			// it is not known, because tail may lack the former holder's last attempts
			tail.SentBelow = 0
			former.hasCrashed = true
			tail.SettleUntil = d.Now().Add(d.Settle + maxSkew)

			// the crashed holder wrote InFlightSeq
			if tail.InFlightSeq != 0 && tail.InFlightFence == tail.Fence-1 {
				tail.InFlightCrashes++
			}
		}

		if former.hasPauseOver = d.outlook.isPauseOver(*tail); former.hasPauseOver {
			tail.PausedUntil = time.Time{}
		}

		forgetSlowAttempt(tail) // it was an attempt of a holder that crashed
		tail.IsOpen, tail.Holder, former.nonce = true, d.Name, tail.Nonce
	})

	return w, former, err
}

// startWatching begins to watch the lane, unless this process already does so.
func (t *laneWorker) startWatching(c lane.Control, now time.Time) {
	if t.watch.watchedSince.IsZero() {
		t.watch.watchedSince, t.watch.tail = now, c.Tail.ETag
	}
}

// hasHolderCommitted reports whether the holder of a watched lane has committed since the last
// look. If so, the worker need not try to take the lease. If the holder has died, the worker
// notices that within two looks. From then on the worker tries to take the lease at each look.
func (t *laneWorker) hasHolderCommitted(tail lane.Tail) bool {
	t.watch.isCommitting = !t.watch.watchedSince.IsZero() && tail.IsOpen &&
		tail.ETag != t.watch.tail
	t.watch.tail = tail.ETag
	return t.watch.isCommitting
}

// reportFailure logs an error of storage or the loss of the lease, and returns the report with that
// error. The next look follows after a random time between lookRetry and twice lookRetry.
func (t *laneWorker) reportFailure(err error) Report {
	if t.drainer.ctx.Err() == nil {
		t.drainer.Log.Warn("drain: interrupted", "lane", t.number, "err", err)
	}
	return Report{State: Waiting,
		Until: t.drainer.Now().Add(lookRetry + t.drainer.drawJitter(lookRetry)), Err: err}
}

// waitForNextLook waits for the next reason to look.
func (t *laneWorker) waitForNextLook(r Report) {
	until := min(r.Until.Sub(t.drainer.Now()), forever)
	switch {
	case r.Err != nil:
		clock.Sleep(t.drainer.openCtx, until)
	case r.State == Busy:
		t.waitWatching(nextWatchDelay(t.watch.isCommitting,
			t.drainer.Now().Sub(t.watch.watchedSince), t.drainer.Lease))
	case r.State == Waiting && r.Paused:
		// A paused lane must cost little, however often it is woken. So there is at most one look
		// in reportFreshFor.
		clock.Sleep(t.drainer.openCtx, min(reportFreshFor, until))
		t.awaitPauseEnd(until-reportFreshFor, r.isForCMS)

	case r.State == Waiting:
		t.awaitWake(until)
	default:
		t.awaitWake(forever)
	}
}

// forever is the longest wait for a wake. It can be long, because the sweep wakes each lane with
// work once a minute.
const forever = 24 * time.Hour

// awaitWake waits for a wake, for at most d, and reports whether one came. It returns early if
// openCtx ends. If a wake is pending, it takes the wake, even if d is not positive.
func (t *laneWorker) awaitWake(d time.Duration) bool {
	if t.wake.take() {
		return true
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-t.wake:
		return true
	case <-timer.C:
	case <-t.drainer.openCtx.Done():
	}

	return false
}

// nextWatchDelay returns the time until the next look at a lane that another process holds. If the
// holder is alive (has committed since the last look), and the lane was watched for longer than the
// length of a lease, the time grows up to a third of that length. The limit is needed because a
// process notices a crash only after two looks. In all other cases the time is watchInterval.
func nextWatchDelay(alive bool, watched, length time.Duration) time.Duration {
	if !alive || watched < length+watchInterval {
		return watchInterval
	}
	return min(watchInterval+(watched-length)/4, length/3)
}
