package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
)

// agendaMax bounds the scheduled messages that a holder knows: one answer of storage. It reads
// later ones when their turn comes nearer.
const dueCacheMax = 1000

// dueCache is what a holder knows of the lane's scheduled messages: the earliest of them, or
// only a moment before which none falls due. It is a copy of the s_ rows, and may be behind
// them: what it lists may have been cancelled or moved, and then its release is refused.
type dueCache struct {
	times    []lane.DueTime // in order
	isLoaded bool           // dues are the earliest ones; else they have to be read
	hasMore  bool           // storage has later ones than the last of dues
	nextAt   time.Time      // where not known: nothing falls due before; zero = nothing at all

	progress map[lane.DueTime]moveProgress // of those whose release has begun

	reading chan duePage   // a read that is under way; nil = none
	added   []lane.DueTime // noted since it was begun
	dropped []lane.DueTime // dropped since it was begun
}

// moveProgress is how far the release of a message has come.
type moveProgress int

const (
	moveNotBegun moveProgress = iota
	moveBegun                 // the message is read, or will be written next
	moveDecided               // its place is given, and its key is shut until that is written
)

// duePage is the answer of one read.
type duePage struct {
	dues []lane.DueTime
	more bool
	err  error
}

// nextDueAt is the moment before which nothing falls due; zero = nothing is scheduled.
func (a *dueCache) nextDueAt() time.Time {
	if a.isLoaded && len(a.times) > 0 {
		return a.times[0].At
	}
	return a.nextAt
}

// firstUndecidedAt returns the earliest due moment of the messages without a place; false if there are
// none.
func (a *dueCache) firstUndecidedAt() (time.Time, bool) {
	if a.isLoaded {
		for _, d := range a.times {
			if a.progress[d] != moveDecided {
				return d.At, true
			}
		}
	}
	return a.nextAt, !a.nextAt.IsZero()
}

// notBegun returns the scheduled messages, without those at the front whose release has begun.
func (a *dueCache) notBegun() []lane.DueTime {
	for i, d := range a.times {
		if a.progress[d] == moveNotBegun {
			return a.times[i:]
		}
	}
	return nil
}

// markProgress notes how far the release of messages has come.
func (a *dueCache) markProgress(p moveProgress, dues ...lane.DueTime) {
	if a.progress == nil {
		a.progress = map[lane.DueTime]moveProgress{}
	}
	for _, d := range dues {
		a.progress[d] = p
	}
}

// addDue takes in what the log says is scheduled.
func (a *dueCache) addDue(d lane.DueTime) {
	if a.reading != nil {
		a.added = append(a.added, d)
	}
	if !a.isLoaded {
		if a.nextAt.IsZero() || d.At.Before(a.nextAt) {
			a.nextAt = d.At
		}
		return
	}
	i, found := slices.BinarySearchFunc(a.times, d, compareDues)
	if found || (i == len(a.times) && a.hasMore) {
		return
	}
	a.times = slices.Insert(a.times, i, d)
	if len(a.times) > dueCacheMax {
		a.times, a.hasMore = a.times[:dueCacheMax], true
	}
	a.updateHorizon()
}

// beginLoad notes that a read of the earliest ones is under way.
func (a *dueCache) beginLoad(answer chan duePage) { a.reading, a.added, a.dropped = answer, nil, nil }

// replaceWith takes in the earliest ones as read from storage. Messages may have been released or filed
// since the read began.
func (a *dueCache) replaceWith(p duePage) {
	noted, dropped := a.added, a.dropped
	a.reading, a.added, a.dropped = nil, nil, nil
	a.times = slices.DeleteFunc(p.dues, func(d lane.DueTime) bool { return slices.Contains(dropped, d) })
	a.isLoaded, a.hasMore = true, p.more
	a.updateHorizon()
	if len(a.times) == 0 && a.hasMore {
		a.isLoaded, a.hasMore, a.nextAt = false, false, p.dues[len(p.dues)-1].At
	}
	for _, d := range noted {
		if !slices.Contains(dropped, d) {
			a.addDue(d)
		}
	}
}

// updateHorizon keeps next for the time when all that is known has been released.
func (a *dueCache) updateHorizon() {
	a.nextAt = time.Time{}
	if a.hasMore && len(a.times) > 0 {
		a.nextAt = a.times[len(a.times)-1].At
	}
}

// invalidateAt calls for another read, because a message was cancelled or moved. A read that is under
// way may not have seen that.
func (a *dueCache) invalidateAt(now time.Time) {
	a.times, a.isLoaded, a.hasMore, a.nextAt = nil, false, false, now
	a.reading, a.added, a.dropped = nil, nil, nil
}

// removeDues takes out what was released, or is not scheduled for that moment any more.
func (a *dueCache) removeDues(gone ...lane.DueTime) {
	for _, d := range gone {
		delete(a.progress, d)
	}
	if a.reading != nil {
		a.dropped = append(a.dropped, gone...)
	}
	a.times = slices.DeleteFunc(a.times, func(d lane.DueTime) bool { return slices.Contains(gone, d) })
	if len(a.times) == 0 && a.hasMore {
		a.isLoaded, a.hasMore = false, false
	}
}

func compareDues(a, b lane.DueTime) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return int(a.Seq - b.Seq)
}
