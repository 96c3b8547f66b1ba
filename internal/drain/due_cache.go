package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
)

// dueCacheMax bounds the due times that a holder has in memory. It is the size of one answer of storage. The holder
// reads later due times shortly before they come.
const dueCacheMax = 1000

// dueCache has the earliest due times of the lane, or only a time before which no message becomes due. It is a copy of
// the rows of scheduled messages (s_). The copy can still have a message that was cancelled or rescheduled. Storage
// then refuses the move of that message.
type dueCache struct {
	times    []lane.DueTime // in order
	isLoaded bool           // "times" has the earliest due times; otherwise they have to be read
	hasMore  bool           // storage has due times after the last one of "times"
	nextAt   time.Time      // messages that are not in "times" become due at nextAt or later; zero = there are none

	progress map[lane.DueTime]moveProgress // a missing entry = moveNotBegun

	reading chan duePage   // a read that is under way; nil = none
	added   []lane.DueTime // due times that were added since that read began
	removed []lane.DueTime // due times that were removed since that read began
}

// moveProgress is how far the move of a message into its key's queue has come.
type moveProgress int

const (
	moveNotBegun moveProgress = iota
	moveBegun                 // the message is being read, or was read and waits for the decision of its position
	moveDecided               // its position is decided, and the committer has not answered
)

// duePage is the answer of one read of due times.
type duePage struct {
	dues []lane.DueTime
	more bool
	err  error
}

// nextDueAt returns the time before which no message becomes due; zero = no message is scheduled.
func (c *dueCache) nextDueAt() time.Time {
	if c.isLoaded && len(c.times) > 0 {
		return c.times[0].At
	}
	return c.nextAt
}

// firstUndecidedAt returns the earliest time at which a message without a decided position can become due. It returns
// false if there is no such message.
func (c *dueCache) firstUndecidedAt() (time.Time, bool) {
	if c.isLoaded {
		for _, d := range c.times {
			if c.progress[d] != moveDecided {
				return d.At, true
			}
		}
	}
	return c.nextAt, !c.nextAt.IsZero()
}

// notBegun returns the first due time whose move has not begun, and all later due times.
func (c *dueCache) notBegun() []lane.DueTime {
	for i, d := range c.times {
		if c.progress[d] == moveNotBegun {
			return c.times[i:]
		}
	}
	return nil
}

func (c *dueCache) markProgress(p moveProgress, dues ...lane.DueTime) {
	if c.progress == nil {
		c.progress = map[lane.DueTime]moveProgress{}
	}
	for _, d := range dues {
		c.progress[d] = p
	}
}

// addDue adds the due time of a scheduled message that was read from the log.
func (c *dueCache) addDue(d lane.DueTime) {
	if c.reading != nil {
		c.added = append(c.added, d)
	}
	if !c.isLoaded {
		if c.nextAt.IsZero() || d.At.Before(c.nextAt) {
			c.nextAt = d.At
		}
		return
	}
	i, found := slices.BinarySearchFunc(c.times, d, compareDueTimes)
	if found || (i == len(c.times) && c.hasMore) {
		return
	}
	c.times = slices.Insert(c.times, i, d)
	if len(c.times) > dueCacheMax {
		c.times, c.hasMore = c.times[:dueCacheMax], true
	}
	c.updateHorizon()
}

// beginLoad is called when a read of the earliest due times begins.
func (c *dueCache) beginLoad(answer chan duePage) { c.reading, c.added, c.removed = answer, nil, nil }

// replaceWith takes over the earliest due times from a read. It adds the due times that were added since the read
// began, and leaves out those that were removed.
func (c *dueCache) replaceWith(p duePage) {
	added, removed := c.added, c.removed
	c.reading, c.added, c.removed = nil, nil, nil
	horizon := c.nextDueAt() // used if storage cuts the answer off before its first row
	if len(p.dues) > 0 {
		horizon = p.dues[len(p.dues)-1].At // before DeleteFunc, which clears the last elements of p.dues
	}
	c.times = slices.DeleteFunc(p.dues, func(d lane.DueTime) bool { return slices.Contains(removed, d) })
	c.isLoaded, c.hasMore = true, p.more
	c.updateHorizon()
	if len(c.times) == 0 && c.hasMore {
		c.isLoaded, c.hasMore, c.nextAt = false, false, horizon
	}
	for _, d := range added {
		if !slices.Contains(removed, d) {
			c.addDue(d)
		}
	}
}

// updateHorizon sets nextAt to the last due time of "times" if storage has later ones, and to zero otherwise.
func (c *dueCache) updateHorizon() {
	c.nextAt = time.Time{}
	if c.hasMore && len(c.times) > 0 {
		c.nextAt = c.times[len(c.times)-1].At
	}
}

// invalidateAt requests another read, because a message was cancelled or rescheduled. It ignores a read that is under
// way, because that read may have begun before the change.
func (c *dueCache) invalidateAt(now time.Time) {
	c.times, c.isLoaded, c.hasMore, c.nextAt = nil, false, false, now
	c.reading, c.added, c.removed = nil, nil, nil
}

// removeDues removes the due times of messages that were moved, cancelled or rescheduled.
func (c *dueCache) removeDues(gone ...lane.DueTime) {
	for _, d := range gone {
		delete(c.progress, d)
	}
	if c.reading != nil {
		c.removed = append(c.removed, gone...)
	}
	c.times = slices.DeleteFunc(c.times, func(d lane.DueTime) bool { return slices.Contains(gone, d) })
	if len(c.times) == 0 && c.hasMore {
		c.isLoaded, c.hasMore = false, false
	}
}

func compareDueTimes(a, b lane.DueTime) int {
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	return int(a.Seq - b.Seq)
}
