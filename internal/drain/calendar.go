package drain

import (
	"time"

	"weir/internal/lane"
)

// Calendar has the times at which no message is sent. Its method is called concurrently, and must return at once.
type Calendar interface {
	// At reports whether the calendar is closed at t. If so, it returns the reason and the end of the closed time.
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

// explainPause tells operators why no message of the lane is sent now: an operator paused the lane, the CMS is
// unavailable, or the calendar is closed. In all other cases it returns "", also while the lane waits for the settle
// time.
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
