package simulation_test

import (
	"context"
	"sync"
	"time"

	"weir/internal/lane"
)

// When the faults are over and all lanes are idle, the CMS of some seeds is away for a while.
// Meanwhile the upstreams post messages of many keys, and the lanes pause. In some of these seeds
// the platform then ends an idle instance. When the CMS is back, the first lane that delivers a
// message ends the pauses of all lanes, of its own process at once and of others soon.

// backWithin is the time within which all messages must be delivered when the CMS is back.
const backWithin = 20 * time.Second

// firstWithin is the time within which the first of these messages must be delivered: a second for
// the next attempt of the scout, and the rest for slow storage and a slow CMS.
const firstWithin = 2500 * time.Millisecond

// troubleOver is longer than the time after which a process takes the failures of a message that
// the CMS refused for over. Until then the absence of the CMS would continue that trouble, and the
// scout would no longer hurry.
const troubleOver = 15 * time.Second

// absence has the time for which the CMS is away, and how.
type absence struct {
	lasts time.Duration // 0 = the seed has no such time
	busy  bool          // the CMS answers 503; else it refuses connections
	ends  bool          // the platform ends an instance meanwhile, and starts it again afterwards
	ended int           // the number of that instance

	mu    sync.Mutex
	until time.Time
}

// drawAbsence draws the absence of the CMS. Most seeds have none.
func (s *settings) drawAbsence(d *dice) {
	if len(s.backoff.Steps) > 0 || s.missing.contract != "" ||
		!d.drawChance("absence", 0.12) {
		return
	}

	s.absence = &absence{lasts: d.drawBetween("absence", 30*time.Second, time.Minute),
		busy: d.drawChance("absence busy", 0.5)}
	s.absence.ends = s.instances > 1 && d.drawChance("absence ends", 0.5)
	s.absence.ended = d.drawBelow("absence ended", s.instances)
	s.backoff.Max = time.Minute

	// Attempts must not count meanwhile: a message that is alone in its lane could become dead of
	// them.
	s.patience = max(s.patience, s.absence.lasts+backWithin)
}

// begin makes the CMS go away.
func (a *absence) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Now().Add(a.lasts)
}

// isOn reports whether the CMS is away now.
func (a *absence) isOn() bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until)
}

// awayMessages returns the number of messages that are posted while the CMS is away.
func (w *world) awayMessages() int { return 4 * w.lanes }

// fileAway posts messages while the CMS is away, and checks that all are delivered soon after. It
// reports whether all work is done afterwards.
func (w *world) fileAway(ctx context.Context) bool {
	if w.absence == nil {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left)
	}

	time.Sleep(troubleOver)
	first, n := w.check.countExpected(), w.awayMessages()
	w.absence.begin()
	w.fileAllOf(ctx, first, n, "away", "article")
	restart := w.endWaiting()
	time.Sleep(time.Until(w.absence.until))

	if !w.absence.ends {
		time.Sleep(firstWithin)
		w.check.checkFirstBack(first, n)
	}

	for end := time.Now().Add(backWithin); time.Now().Before(end) &&
		!w.check.isAllTaken(first, n); {
		time.Sleep(50 * time.Millisecond)
	}

	w.check.checkBack(first, n)
	restart()
	w.quiet = time.Now()

	return w.awaitRest(ctx)
}

// endWaiting ends a process that waits with the lanes for the CMS: the platform can end an instance
// that has no invocation. It returns the function that starts the instance again. Then no process
// may know of a lane that pauses. The process has held no lane for idleBefore when it ends: a
// crashed holder's lease and settle time would pass first, and after a hand-over the process needs
// a moment to ring the others.
func (w *world) endWaiting() (restart func()) {
	if !w.absence.ends {
		return func() {}
	}

	s := w.slots[w.absence.ended]
	time.Sleep(w.dice.drawBetween("absence end", 0, w.absence.lasts))

	const idleBefore = 500 * time.Millisecond
	for idleSince := time.Now(); time.Now().Before(w.absence.until); {
		p := s.currentProcess()
		if p.invocations.Load() > 0 || len(p.drainer.Held()) > 0 || p.isDead() {
			idleSince = time.Now()
		}
		if w.countAlive() > 1 && time.Since(idleSince) > idleBefore {
			p.killProcess()
			w.check.addCounts(func(c *counts) { c.AwayEnds++ })
			return s.startProcess
		}

		time.Sleep(w.dice.drawBetween("absence end looks", 50*time.Millisecond,
			150*time.Millisecond))
	}

	return func() {}
}

// pickAway returns the instance that gets a post while the CMS is away; nil = any. An instance that
// ends meanwhile gets all messages of the lanes but the first, so that other processes may not know
// of these lanes.
func (w *world) pickAway(name string) *slot {
	switch {
	case !w.absence.isOn() || !w.absence.ends || w.slots[w.absence.ended].currentProcess().isDead():
		return nil
	case lane.Of("away"+name, w.lanes) > 0:
		return w.slots[w.absence.ended]
	}

	other := w.absence.ended + 1 + w.dice.drawBelow("away to "+name, w.instances-1)
	return w.slots[other%w.instances]
}

// countAlive returns the number of instances with a running process.
func (w *world) countAlive() (alive int) {
	for _, s := range w.slots {
		if !s.currentProcess().isDead() {
			alive++
		}
	}
	return alive
}

// countExpected returns the number of the submissions so far, which is the number of the next one.
func (c *checker) countExpected() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.expected)
}

// checkFirstBack checks that the CMS has taken one of the n submissions from the number first on.
func (c *checker) checkFirstBack(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		if f := c.filedAs(i); f == nil || f.taken {
			return
		}
	}

	c.addViolation("unaware", "no message is delivered, %s after the CMS was back", firstWithin)
}

// checkBack checks that the CMS has taken the n submissions from the number first on.
func (c *checker) checkBack(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		c.counts.Recovered++
		if f := c.filedAs(i); f != nil && !f.taken {
			c.addViolation("unaware",
				"seq %d of lane %d still waits, %s after the CMS was back", f.id.Seq,
				f.id.Lane, backWithin)
		}
	}
}

// clocksApart is the largest difference between times that two processes read from their clocks,
// with the tolerance that a process has for a recovery that another one has stored.
const clocksApart = 6 * time.Second

// checkPauseEnded checks a holder that takes a lane and ends its pause for the CMS: the CMS has not
// asked for the pause, and has taken a message that was sent after the lane's last failure.
func (c *checker) checkPauseEnded(p *process, l *laneState, number int, v map[string]any) {
	was := l.last.Tail
	until, _ := v["PausedUntil"].(time.Time)
	if !was.PausedUntil.After(p.nowAtMost()) || !until.Before(was.PausedUntil) {
		return
	}

	switch {
	case time.Now().Before(l.askedUntil.Add(-clocksApart / 2)):
		c.addViolation("ended", "%s ended the pause of lane %d, for which the CMS has asked",
			p.name, number)
	case c.takenSent.Before(was.LastErrorAt.Add(-clocksApart)):
		c.addViolation("ended",
			"%s ended the pause of lane %d, which failed %s after the last delivery was sent",
			p.name, number, was.LastErrorAt.Sub(c.takenSent))

	default:
		c.counts.Ended++
	}
}

// noteAsked records an answer of the CMS: a delivery, or a pause that the CMS asks for.
func (c *checker) noteAsked(l *laneState, r *request) {
	if r.status == 200 && r.sent.After(c.takenSent) {
		c.takenSent = r.sent
	}
	if r.asked > 0 && r.status >= 400 {
		l.askedUntil = time.Now().Add(r.asked)
	}
}
