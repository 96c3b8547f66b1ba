package drain

import (
	"context"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/panics"
)

// Each lane has a breaker of its own, but all lanes write to the same CMS. So the lanes of a
// process share their experience with it:
//
//   - A delivery by a lane that had paused for the CMS is a recovery. It ends the pauses of the
//     same cause in all lanes of the process at once. A process that knows of a recovery writes it
//     into storage. A process with lanes that pause reads it there, once for all its lanes.
//   - While the CMS is away, one lane at a time is the scout: its pauses are short, so that a
//     recovery is noticed soon. In the first minute it tries once a second, later ever more seldom.
//     All other lanes pause for as long as the backoff asks.
//
// A pause that the CMS asked for (Retry-After) has no cause, so no recovery ends it. Neither does a
// recovery end an operator's pause, the settle time or the calendar. Each recovery ends a pause at
// most once, because a pause that begins after it has a later failure. So the
// number of ended pauses stays bounded by that of the recoveries, even if the CMS takes only some
// messages.

const (
	// A scout pauses for at most scoutPauseMin in the first scoutHurriesFor of a trouble. Later it
	// pauses for at most scoutPauseMin plus the time since then divided by scoutShare. Most outages
	// are restarts and end within a minute.
	scoutPauseMin   = time.Second
	scoutHurriesFor = time.Minute
	scoutShare      = 8
	// A trouble is over if no lane has paused for troubleEndsAfter: a lane that still waits tries
	// again within seconds after its pause. Without this limit, a message that failed alone, and is
	// dead, would make the first pauses of a later trouble long.
	troubleEndsAfter = 10 * time.Second
	// readsRecoveryMin and readsRecoveryMax bound the time between two reads of the stored
	// recovery.
	readsRecoveryMin, readsRecoveryMax = 5 * time.Second, time.Minute
)

// outlook has the failures and recoveries of the CMS that the lanes of a process share. It is safe
// for concurrent use.
type outlook struct {
	backoff Backoff

	mu       sync.Mutex
	troubles map[string]*trouble // by the cause of the pauses
	last     lane.Recovery       // the last known recovery
	readAt   time.Time           // when the stored recovery was last read
}

// trouble has the pauses of one cause, since the last recovery that ends such pauses.
type trouble struct {
	since       time.Time         // when a lane first paused
	pausesUntil time.Time         // the latest end of a pause
	probes      map[int]time.Time // by lane: the end of its pause
}

func newOutlook(b Backoff) *outlook {
	return &outlook{backoff: b, troubles: map[string]*trouble{}}
}

// findTrouble returns the trouble of a cause. If there is none, the trouble begins now. The caller
// holds mu.
func (o *outlook) findTrouble(cause string, now time.Time) *trouble {
	t := o.troubles[cause]
	if t == nil || now.Sub(t.pausesUntil) > troubleEndsAfter {
		t = &trouble{since: now, pausesUntil: now, probes: map[int]time.Time{}}
		o.troubles[cause] = t
	}
	return t
}

// pausePlan is a pause that a lane is about to begin, and for which the CMS did not ask.
type pausePlan struct {
	lane  int
	cause string
	delay time.Duration // the pause that the backoff asks for
	// isOverload: the CMS has too much to do (429), so a scout does not hurry.
	isOverload bool
}

// planPause returns the length of a pause: the delay of the plan, or a shorter one if the lane has
// to be the scout.
func (o *outlook) planPause(p pausePlan, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()

	t, delay := o.findTrouble(p.cause, now), p.delay
	longest := o.scoutPause(now.Sub(t.since), p.isOverload)
	if delay > longest && !t.hasProbe(p.lane, now, now.Add(longest)) {
		delay = longest
	}

	t.probes[p.lane], t.pausesUntil = now.Add(delay), clock.Later(t.pausesUntil, now.Add(delay))

	return delay
}

// scoutPause returns the longest pause of a scout, in a trouble that has lasted for the given time.
// Operators who set the steps of the backoff, or a longer first one, have chosen the pauses of the
// first minute themselves.
func (o *outlook) scoutPause(lasts time.Duration, isOverload bool) time.Duration {
	shortest := o.backoff.longestDelay(1)
	if isOverload || len(o.backoff.Steps) > 0 {
		return max(shortest, lasts/scoutShare)
	}
	return max(shortest, scoutPauseMin+max(lasts-scoutHurriesFor, 0)/scoutShare)
}

// hasProbe reports whether the pause of another lane ends between two times.
func (t *trouble) hasProbe(except int, after, by time.Time) bool {
	for number, at := range t.probes {
		if number != except && at.After(after) && !at.After(by) {
			return true
		}
	}
	return false
}

// noteRecovery records a recovery, and reports whether it is later than the last known one.
func (o *outlook) noteRecovery(r lane.Recovery) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.At.After(o.last.At) {
		return false
	}

	o.last = r
	delete(o.troubles, lane.CauseAway)
	delete(o.troubles, lane.CauseRefused(r.Contract))

	return true
}

// isPauseOver reports whether the last known recovery ends the lane's pause for the CMS.
func (o *outlook) isPauseOver(t lane.Tail) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last.Ends(t)
}

// takeReadTurn reports whether the stored recovery has to be read now. It also returns the time
// until the next read.
func (o *outlook) takeReadTurn(now time.Time) (isDue bool, next time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	longest := time.Duration(0) // since a trouble began
	for _, t := range o.troubles {
		longest = max(longest, now.Sub(t.since))
	}

	next = min(max(longest/scoutShare, readsRecoveryMin), readsRecoveryMax)
	if since := now.Sub(o.readAt); since < next && since >= 0 {
		return false, next - since
	}

	o.readAt = now

	return true, next
}

// announceRecovery is called when a lane that had paused has delivered a message. It ends the
// pauses of the other lanes of this process, and stores a row that other processes read.
func (d *Drainer) announceRecovery(number int, r lane.Recovery) {
	if !d.outlook.noteRecovery(r) {
		return
	}

	d.wakeOthers(number, (*laneWorker).mayPauseForCMS)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed {
		return
	}

	d.wg.Go(func() {
		defer panics.Log(d.Log, "drain: recovery")
		ctx, cancel := context.WithTimeout(d.ctx, closeTimeout)
		defer cancel()
		if err := d.Store.SaveRecovery(ctx, r); err != nil && d.ctx.Err() == nil {
			d.Log.Warn("drain: recovery of the cms not stored", "err", err)
		}
	})
}

// mayPauseForCMS reports whether the worker waits for the end of a pause for the CMS, or may be
// about to wait for it.
func (t *laneWorker) mayPauseForCMS() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endTenure == nil && (t.reportedLook != t.looks || t.report.isForCMS)
}

// awaitPauseEnd waits as awaitWake does. If the lane pauses for the CMS, it meanwhile reads from
// storage whether another process has noticed a recovery.
func (t *laneWorker) awaitPauseEnd(d time.Duration, isForCMS bool) {
	end := t.drainer.Now().Add(d)
	for {
		left := end.Sub(t.drainer.Now())
		if !isForCMS {
			t.awaitWake(left)
			return
		}

		isDue, next := t.drainer.outlook.takeReadTurn(t.drainer.Now())
		if isDue {
			t.drainer.readRecovery()
		}

		// Otherwise all paused lanes would wake in the same moment, and chance would choose the one
		// that reads.
		next += time.Duration(t.number) * time.Microsecond
		if t.awaitWake(min(left, next)) || left <= next || t.drainer.openCtx.Err() != nil {
			return
		}
	}
}

// readRecovery reads the stored recovery, and wakes the paused lanes if it is a new one.
func (d *Drainer) readRecovery() {
	ctx, cancel := context.WithTimeout(d.openCtx, closeTimeout)
	defer cancel()
	r, err := d.Store.ReadRecovery(ctx)
	if err != nil || r.At.IsZero() {
		return // the next read follows soon, and the pause ends anyway
	}

	// The clocks of the process that wrote it and of the last holder can differ.
	if r.At = r.At.Add(maxSkew); d.outlook.noteRecovery(r) {
		d.wakeOthers(noLane, (*laneWorker).mayPauseForCMS)
	}
}
