package drain

import (
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
)

// timetable returns the times at which a session goes on. It combines the times of held messages,
// which the selector knows, with those of scheduled messages, which the dueMover knows.
type timetable struct {
	selector *selector
	due      *dueMover
}

// nextDueAt returns when the next held or scheduled message is due; zero = there is none.
func (t *timetable) nextDueAt() time.Time {
	return earlierOf(t.selector.nextHeldAt(), t.due.nextDueAt())
}

// nextUntriedAt returns when the next scheduled or untried message is due; zero = there is none. A
// held message is untried if its key had no turn in this round (see breaker.go).
func (t *timetable) nextUntriedAt() time.Time {
	return earlierOf(t.selector.nextUntriedAt(), t.due.nextDueAt())
}

// nextWakeAt returns the earliest time for which the session needs a timer; zero = none. At that
// time the session sends a held message, or begins to read the scheduled messages that it moves
// next.
func (t *timetable) nextWakeAt() time.Time {
	return earlierOf(t.selector.nextHeldWakeAt(), t.due.nextReadAt())
}

// isSoon reports whether a time of the timetable comes within lane.DueLead. If the holder handed
// the lane over just before that time, a process would have to take the lane again at once.
func (t *timetable) isSoon(at time.Time) bool {
	return !at.IsZero() && at.Sub(t.due.now()) <= lane.DueLead
}

// Calendar has the times at which no message is sent. Its method is called concurrently, and must
// return at once.
type Calendar interface {
	// At reports whether the calendar is closed at t. If so, it returns the reason and the end of
	// the closed time.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// calendarOpensAt returns the first time, from the given time on, at which the calendar is open.
func (d *Drainer) calendarOpensAt(at time.Time) time.Time {
	if d.Calendar != nil {
		if closed, _, until := d.Calendar.At(at); closed {
			return until
		}
	}
	return at
}

// explainPause tells operators why no message of the lane is sent now: an operator paused the lane,
// the CMS is unavailable, or the calendar is closed. In all other cases it returns "", also while
// the lane waits for the settle time.
func (d *Drainer) explainPause(c lane.Control, now time.Time) string {
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

// maxPausesAge is the time for which a holder may send messages after a read of the pauses has
// begun. After this time the holder must first read the pauses again. The holder reads the pauses
// each second, so this time is over only after a long attempt, or after a slow or failed read.
const maxPausesAge = controlInterval + 500*time.Millisecond

// operatorPauses has the pauses that operators have set for the lane and for keys, as the session
// last read them.
type operatorPauses struct {
	askedAt   time.Time            // when the last read of pauses began
	laneUntil time.Time            // zero = the lane is not paused
	keyUntil  map[string]time.Time // by hash of the paused key
}

// replaceWith takes over the pauses from the control rows c. The read of c began at askedAt.
func (p *operatorPauses) replaceWith(c lane.Control, askedAt time.Time) {
	*p = operatorPauses{askedAt: askedAt}
	if pause, isPaused := c.LanePause(askedAt); isPaused {
		p.laneUntil = pause.Ends()
	}

	for hash, pause := range c.KeyPausesByHash(askedAt) {
		if p.keyUntil == nil {
			p.keyUntil = map[string]time.Time{}
		}
		p.keyUntil[hash] = pause.Ends()
	}
}

// isOutdated reports whether the pauses have to be read again before a message is sent.
func (p *operatorPauses) isOutdated(now time.Time) bool { return now.Sub(p.askedAt) > maxPausesAge }

func (p *operatorPauses) isKeyPaused(keyHash string, now time.Time) bool {
	return p.keyUntil[keyHash].After(now)
}

// nextAttemptAt returns when the first message of a block may be sent: at NextAt, or at the end of
// the key's pause if the pause ends later.
func (p *operatorPauses) nextAttemptAt(k *keyState) time.Time {
	return clock.Later(k.NextAt, p.keyUntil[k.KeyHash])
}
