package drain

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/weir"
)

// dueCacheMax bounds the due times that a holder has in memory. It is the size of one answer of
// storage. The holder reads later due times shortly before they come.
const dueCacheMax = 1000

// dueCache has the earliest due times of the lane, or only a time before which no message becomes
// due. It is a copy of the rows of scheduled messages (s_). The copy can still have a message that
// was cancelled or rescheduled. Storage then refuses the move of that message.
type dueCache struct {
	times    []lane.DueTime // in order
	isLoaded bool           // "times" has the earliest due times; otherwise they have to be read
	hasMore  bool           // storage has due times after the last one of "times"
	// messages that are not in "times" become due at nextAt or later; zero = there are none
	nextAt time.Time

	progress map[lane.DueTime]moveProgress // a missing entry = moveNotBegun

	reading chan duePage   // a read that is under way; nil = none
	added   []lane.DueTime // due times that were added since that read began
	removed []lane.DueTime // due times that were removed since that read began
}

// moveProgress is how far the move of a message into its key's queue has come.
type moveProgress int

const (
	moveNotBegun moveProgress = iota
	// the message is being read, or was read and waits for the decision of its position
	moveBegun
	moveDecided // its position is decided, and the committer has not answered
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

// firstUndecidedAt returns the earliest time at which a message without a decided position can
// become due. It returns false if there is no such message.
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
func (c *dueCache) beginLoad(answer chan duePage) {
	c.reading, c.added, c.removed = answer, nil, nil
}

// replaceWith takes over the earliest due times from a read. It adds the due times that were added
// since the read began, and leaves out those that were removed.
func (c *dueCache) replaceWith(p duePage) {
	added, removed := c.added, c.removed
	c.reading, c.added, c.removed = nil, nil, nil
	horizon := c.nextDueAt() // used if storage cuts the answer off before its first row
	if len(p.dues) > 0 {
		// before DeleteFunc, which clears the last elements of p.dues
		horizon = p.dues[len(p.dues)-1].At
	}

	c.times = slices.DeleteFunc(p.dues,
		func(d lane.DueTime) bool { return slices.Contains(removed, d) })
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

// updateHorizon sets nextAt to the last due time of "times" if storage has later ones, and to zero
// otherwise.
func (c *dueCache) updateHorizon() {
	c.nextAt = time.Time{}
	if c.hasMore && len(c.times) > 0 {
		c.nextAt = c.times[len(c.times)-1].At
	}
}

// invalidateAt requests another read, because a message was cancelled or rescheduled. It ignores a
// read that is under way, because that read may have begun before the change.
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

	c.times = slices.DeleteFunc(c.times,
		func(d lane.DueTime) bool { return slices.Contains(gone, d) })
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

// maxPrefetchedBody is the size, in bytes, of the largest body that is fetched before its message
// is due or retried.
const maxPrefetchedBody = 256 << 10

// dueRead is the result of one read of due messages.
type dueRead struct {
	control lane.Control
	askedAt time.Time
	// when the read began, all sent messages had lower sequence numbers; 0 = not known
	low     int64
	entries []readyMessage
	gone    []lane.DueTime // due times of messages that were cancelled or rescheduled
	took    time.Duration  // duration of the read, without the search for positions
	err     error
}

// readDue reads due messages, and finds their positions. The parameter low is the present value of
// duePositions.sentBelow: all messages that were sent have lower sequence numbers; 0 = not known.
func readDue(ctx context.Context, scope laneScope, positions *duePositions, dues []lane.DueTime,
	low int64, room *memoryRoom,
) dueRead {
	p := dueRead{askedAt: scope.now(), low: low}
	p.err = p.readMessages(ctx, scope, dues, room)
	p.took = scope.now().Sub(p.askedAt)
	if p.err == nil {
		p.err = positions.findPositions(ctx, &p)
	}
	return p
}

// readMessages reads the lane's control rows, and the messages that still have the given due times.
// It also fetches the messages' bodies, except large bodies and bodies for which there is no room.
func (p *dueRead) readMessages(ctx context.Context, scope laneScope, dues []lane.DueTime,
	room *memoryRoom) error {
	var found map[int64]*lane.Entry
	group, reading := errgroup.WithContext(ctx)
	group.Go(panics.Guard(func() (err error) {
		p.control, err = scope.store.ReadControl(reading, scope.lane)
		return err
	}))

	group.Go(panics.Guard(func() (err error) {
		found, err = scope.store.DeliveryState().ReadDueMessages(reading, scope.lane, dues)
		return err
	}))

	if err := group.Wait(); err != nil {
		return err
	}

	group, reading = errgroup.WithContext(ctx)
	for _, d := range dues {
		e := found[d.Seq]
		if e == nil || e.Stage != weir.Scheduled || e.DueTime() != d {
			p.gone = append(p.gone, d)
			continue
		}

		p.entries = append(p.entries, readyMessage{due: d, entry: e})

		if e.Message.Size > maxPrefetchedBody || !room.takeBody(e) {
			e.DropBody()
			continue
		}

		group.Go(panics.Guard(func() error { fetchBody(reading, scope.store, e); return nil }))
	}

	return group.Wait()
}

// fetchBody fetches the body of a message before its attempt. It ignores errors, because the
// attempt reads the body again, and one body that storage does not return must not hold up other
// messages.
func fetchBody(ctx context.Context, store *lane.Store, e *lane.Entry) { _ = store.LoadBody(ctx, e) }
