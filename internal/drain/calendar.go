package drain

import (
	"time"

	"weir/internal/lane"
)

// Calendar has the times at which no message is sent. Its method must return at once.
type Calendar interface {
	// At reports whether a time is closed, why, and until when.
	At(t time.Time) (closed bool, reason string, until time.Time)
}

// calendarOpensAt returns the first time from at on at which the calendar is open.
func (d *Drainer) calendarOpensAt(at time.Time) time.Time {
	if d.Calendar != nil {
		if closed, _, until := d.Calendar.At(at); closed {
			return until
		}
	}
	return at
}

// explainPause returns the reason for operators why no message of a lane is sent at a time; "" = messages may be sent.
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
