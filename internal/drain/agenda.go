package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
)

// agendaMax bounds how many scheduled messages a holder knows; the later ones stay in
// storage until their turn comes nearer.
const agendaMax = 256

// agenda is what a holder knows of the lane's scheduled messages: the earliest of them, or
// only a moment before which none falls due. It is a copy of the s_ rows, and may be behind
// them: what it lists may have been cancelled or moved, and then its release is refused.
type agenda struct {
	dues  []lane.Due // in order
	known bool       // dues are the earliest ones; else they have to be read
	more  bool       // storage has later ones than the last of dues
	next  time.Time  // where not known: nothing falls due before; zero = nothing at all
}

// nextDue is the moment before which nothing falls due; zero = nothing is scheduled.
func (a *agenda) nextDue() time.Time {
	if a.known && len(a.dues) > 0 {
		return a.dues[0].At
	}
	return a.next
}

// note takes in what the log says is scheduled.
func (a *agenda) note(d lane.Due) {
	if !a.known {
		if a.next.IsZero() || d.At.Before(a.next) {
			a.next = d.At
		}
		return
	}
	i, found := slices.BinarySearchFunc(a.dues, d, compareDues)
	if found || (i == len(a.dues) && a.more) {
		return
	}
	a.dues = slices.Insert(a.dues, i, d)
	if len(a.dues) > agendaMax {
		a.dues, a.more = a.dues[:agendaMax], true
	}
	a.horizon()
}

// learn takes in the earliest ones as read from storage.
func (a *agenda) learn(dues []lane.Due, more bool) {
	a.dues, a.more, a.known = dues, more, true
	a.horizon()
}

// horizon keeps next for the time when all that is known has been released.
func (a *agenda) horizon() {
	a.next = time.Time{}
	if a.more && len(a.dues) > 0 {
		a.next = a.dues[len(a.dues)-1].At
	}
}

// forget asks for reading anew, because something was cancelled or moved.
func (a *agenda) forget(now time.Time) { a.dues, a.known, a.more, a.next = nil, false, false, now }

// until gives the first ones, up to limit, that fall due by a moment.
func (a *agenda) until(by time.Time, limit int) []lane.Due {
	n := 0
	for n < len(a.dues) && n < limit && !a.dues[n].At.After(by) {
		n++
	}
	return slices.Clone(a.dues[:n])
}

// drop takes out what was released, or is not scheduled for that moment any more.
func (a *agenda) drop(gone ...lane.Due) {
	a.dues = slices.DeleteFunc(a.dues, func(d lane.Due) bool { return slices.Contains(gone, d) })
	if len(a.dues) == 0 && a.more {
		a.known, a.more = false, false
	}
}

func compareDues(a, b lane.Due) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return int(a.Seq - b.Seq)
}
