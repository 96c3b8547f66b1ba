package drain

import (
	"time"

	"weir/internal/lane"
)

// Calendar has the times at which no message is sent. Its method must return at once.
type Calendar interface {
	// At reports whether the calendar is closed at a time. If so, it returns the reason and the end of the closed time.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// calendarOpensAt returns the given time, or the end of the closed time if the calendar is closed at the given time.
func (d *Drainer) calendarOpensAt(at time.Time) time.Time {
	if d.Calendar != nil {
		if closed, _, until := d.Calendar.At(at); closed {
			return until
		}
	}
	return at
}

// explainPause returns, for operators, which pause or closed time keeps messages of a lane from being sent now; "" =
// none. It does not consider the settle time.
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
