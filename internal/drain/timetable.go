package drain

import (
	"time"

	"weir/internal/lane"
)

// timetable returns the times at which a session goes on. It combines the times of held messages, which the selector
// knows, with those of scheduled messages, which the dueMover knows.
type timetable struct {
	selector *selector
	due      *dueMover
}

// nextDueAt returns when the next held or scheduled message is due; zero = there is none.
func (t *timetable) nextDueAt() time.Time {
	return earlierOf(t.selector.nextHeldAt(), t.due.nextDueAt())
}

// nextUntriedAt returns when the next scheduled or untried message is due; zero = there is none. A held message is
// untried if its key had no turn in this round (see breaker.go).
func (t *timetable) nextUntriedAt() time.Time {
	return earlierOf(t.selector.nextUntriedAt(), t.due.nextDueAt())
}

// nextWakeAt returns the earliest time for which the session needs a timer; zero = none. At that time the session sends
// a held message, or begins to read the scheduled messages that it moves next.
func (t *timetable) nextWakeAt() time.Time {
	return earlierOf(t.selector.nextHeldWakeAt(), t.due.nextReadAt())
}

// isDueSoon reports whether a message becomes due within lane.DueLead. If the holder handed the lane over
// just before the message is due, a process would have to take the lane again at once.
func (t *timetable) isDueSoon() bool { return t.isSoon(t.nextDueAt()) }

// isUntriedSoon reports whether a scheduled or untried message becomes due within lane.DueLead.
func (t *timetable) isUntriedSoon() bool { return t.isSoon(t.nextUntriedAt()) }

func (t *timetable) isSoon(at time.Time) bool {
	return !at.IsZero() && at.Sub(t.due.now()) <= lane.DueLead
}
