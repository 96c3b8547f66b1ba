package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
)

// agendaMax bounds the scheduled messages that a holder knows: one answer of storage. It reads
// later ones when their turn comes nearer.
const agendaMax = 1000

// agenda is what a holder knows of the lane's scheduled messages: the earliest of them, or
// only a moment before which none falls due. It is a copy of the s_ rows, and may be behind
// them: what it lists may have been cancelled or moved, and then its release is refused.
type agenda struct {
	dues  []lane.DueTime // in order
	known bool           // dues are the earliest ones; else they have to be read
	more  bool           // storage has later ones than the last of dues
	next  time.Time      // where not known: nothing falls due before; zero = nothing at all

	progress map[lane.DueTime]progress // of those whose release has begun

	reading chan agendaPage // a read that is under way; nil = none
	noted   []lane.DueTime  // noted since it was begun
	dropped []lane.DueTime  // dropped since it was begun
}

// progress is how far the release of a message has come.
type progress int

const (
	untouched progress = iota
	begun              // the message is read, or will be written next
	decided            // its place is given, and its key is shut until that is written
)

// agendaPage is the answer of one read.
type agendaPage struct {
	dues []lane.DueTime
	more bool
	err  error
}

// nextDue is the moment before which nothing falls due; zero = nothing is scheduled.
func (a *agenda) nextDue() time.Time {
	if a.known && len(a.dues) > 0 {
		return a.dues[0].At
	}
	return a.next
}

// undecided returns the earliest due moment of the messages without a place; false if there are
// none.
func (a *agenda) undecided() (time.Time, bool) {
	if a.known {
		for _, d := range a.dues {
			if a.progress[d] != decided {
				return d.At, true
			}
		}
	}
	return a.next, !a.next.IsZero()
}

// untouched returns the scheduled messages, without those at the front whose release has begun.
func (a *agenda) untouched() []lane.DueTime {
	for i, d := range a.dues {
		if a.progress[d] == untouched {
			return a.dues[i:]
		}
	}
	return nil
}

// mark notes how far the release of messages has come.
func (a *agenda) mark(p progress, dues ...lane.DueTime) {
	if a.progress == nil {
		a.progress = map[lane.DueTime]progress{}
	}
	for _, d := range dues {
		a.progress[d] = p
	}
}

// note takes in what the log says is scheduled.
func (a *agenda) note(d lane.DueTime) {
	if a.reading != nil {
		a.noted = append(a.noted, d)
	}
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

// begin notes that a read of the earliest ones is under way.
func (a *agenda) begin(answer chan agendaPage) { a.reading, a.noted, a.dropped = answer, nil, nil }

// learn takes in the earliest ones as read from storage. Messages may have been released or filed
// since the read began.
func (a *agenda) learn(p agendaPage) {
	noted, dropped := a.noted, a.dropped
	a.reading, a.noted, a.dropped = nil, nil, nil
	a.dues = slices.DeleteFunc(p.dues, func(d lane.DueTime) bool { return slices.Contains(dropped, d) })
	a.known, a.more = true, p.more
	a.horizon()
	if len(a.dues) == 0 && a.more {
		a.known, a.more, a.next = false, false, p.dues[len(p.dues)-1].At
	}
	for _, d := range noted {
		if !slices.Contains(dropped, d) {
			a.note(d)
		}
	}
}

// horizon keeps next for the time when all that is known has been released.
func (a *agenda) horizon() {
	a.next = time.Time{}
	if a.more && len(a.dues) > 0 {
		a.next = a.dues[len(a.dues)-1].At
	}
}

// forget calls for another read, because a message was cancelled or moved. A read that is under
// way may not have seen that.
func (a *agenda) forget(now time.Time) {
	a.dues, a.known, a.more, a.next = nil, false, false, now
	a.reading, a.noted, a.dropped = nil, nil, nil
}

// drop takes out what was released, or is not scheduled for that moment any more.
func (a *agenda) drop(gone ...lane.DueTime) {
	for _, d := range gone {
		delete(a.progress, d)
	}
	if a.reading != nil {
		a.dropped = append(a.dropped, gone...)
	}
	a.dues = slices.DeleteFunc(a.dues, func(d lane.DueTime) bool { return slices.Contains(gone, d) })
	if len(a.dues) == 0 && a.more {
		a.known, a.more = false, false
	}
}

func compareDues(a, b lane.DueTime) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return int(a.Seq - b.Seq)
}
