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

const (
	// duePageRows is the number of due times in one answer of storage. A holder has no more of them
	// in memory, unless more messages become due within leadMax.
	duePageRows = 1000
	// maxDueBytes bounds the bytes of due times in memory if more messages become due within
	// leadMax. dueBytes is about what one takes, with the hash of its key.
	maxDueBytes, dueBytes = 10 * duePageRows * 256, 256
)

// dueCache has the earliest due times of the lane, or only a time before which no message becomes
// due. It is a copy of the rows of scheduled messages (s_). The copy can still have a message that
// was cancelled or rescheduled. Storage then refuses the move of that message.
type dueCache struct {
	times    []lane.DueTime // in order
	isLoaded bool           // "times" has the earliest due times; otherwise they have to be read
	hasMore  bool           // storage has due times after the last one of "times"
	kept     int            // number of due times after the last read
	// messages that are not in "times" become due at nextAt or later; zero = there are none
	nextAt time.Time

	progress map[lane.DueTime]moveProgress // a missing entry = moveNotBegun
	// hashes of the ordering keys of the messages in "times"; a missing entry = the key is not known
	keys map[lane.DueTime]string
	// by hash of the key: the earliest due time of a message without a decided position; "" =
	// messages whose key is not known; nil = it has to be computed again
	firstUndecided map[string]time.Time

	reading chan duePage      // a read that is under way; nil = none
	added   []lane.DueMessage // messages that were added since that read began
	removed []lane.DueTime    // due times that were removed since that read began
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
	after lane.DueTime // the page follows this due time; zero = it has the earliest ones
	dues  []lane.DueMessage
	more  bool
	err   error
}

// nextDueAt returns the time before which no message becomes due; zero = no message is scheduled.
func (c *dueCache) nextDueAt() time.Time {
	if c.isLoaded && len(c.times) > 0 {
		return c.times[0].At
	}
	return c.nextAt
}

// firstUndecidedAt returns the earliest time at which a message of the key without a decided
// position can become due; zero = there is no such message. A message whose key is not known can
// have any key, and so can a message that is not in "times".
func (c *dueCache) firstUndecidedAt(keyHash string) time.Time {
	if !c.isLoaded {
		return c.nextAt
	}

	if c.firstUndecided == nil {
		c.firstUndecided = map[string]time.Time{}
		for _, d := range slices.Backward(c.times) {
			if c.progress[d] != moveDecided {
				c.firstUndecided[c.keys[d]] = d.At
			}
		}
	}

	return earlierOf(earlierOf(c.firstUndecided[""], c.firstUndecided[keyHash]), c.nextAt)
}

// knowsKeysUntil reports whether the keys of all messages that are due by then are known.
func (c *dueCache) knowsKeysUntil(then time.Time) bool {
	unknown := c.firstUndecidedAt("")
	return c.isLoaded && (unknown.IsZero() || unknown.After(then))
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
		if (c.progress[d] == moveDecided) != (p == moveDecided) {
			c.firstUndecided = nil
		}
		c.progress[d] = p
	}
}

// addDue adds a scheduled message that was read from the log.
func (c *dueCache) addDue(m lane.DueMessage) {
	d := m.DueTime
	if c.reading != nil {
		c.added = append(c.added, m)
	}

	if !c.isLoaded {
		if c.nextAt.IsZero() || d.At.Before(c.nextAt) {
			c.nextAt = d.At
		}
		return
	}

	i, found := slices.BinarySearchFunc(c.times, d, compareDueTimes)
	if found || (i == len(c.times) && c.hasMore && !d.At.Before(c.nextAt)) {
		return // storage has it after the last one that was read
	}

	c.times = slices.Insert(c.times, i, d)
	c.putKey(m)
	// While a read is under way, nothing is cut off: the page of the read begins behind the last one.
	if most := max(duePageRows, c.kept); len(c.times) > most && c.reading == nil {
		for _, later := range c.times[most:] {
			delete(c.keys, later)
		}
		c.times, c.hasMore = c.times[:most], true
	}

	c.updateHorizon()
}

// putKey keeps the key of a message that was added to "times".
func (c *dueCache) putKey(m lane.DueMessage) {
	c.firstUndecided = nil
	if m.KeyHash == "" {
		return
	}
	if c.keys == nil {
		c.keys = map[lane.DueTime]string{}
	}
	c.keys[m.DueTime] = m.KeyHash
}

// wantsMore reports whether further due times are to be read: storage has some before the time, and
// there is room for a page of them. bytes is the room for all due times.
func (c *dueCache) wantsMore(before time.Time, bytes int) bool {
	most := max(bytes/dueBytes-duePageRows, duePageRows/4)
	return c.isLoaded && c.hasMore && c.nextAt.Before(before) && len(c.times) <= most
}

// lastRead returns the due time after which storage has further ones; zero = none was read.
func (c *dueCache) lastRead() lane.DueTime {
	if !c.isLoaded || len(c.times) == 0 {
		return lane.DueTime{}
	}
	return c.times[len(c.times)-1]
}

// beginLoad is called when a read of due times begins.
func (c *dueCache) beginLoad(answer chan duePage) {
	c.reading, c.added, c.removed = answer, nil, nil
}

// takePage takes over the due times of a read: in place of all earlier ones, or behind them. It
// adds the due times that were added since the read began, and leaves out those that were removed.
func (c *dueCache) takePage(p duePage) {
	added, removed := c.added, c.removed
	c.reading, c.added, c.removed = nil, nil, nil
	horizon := c.nextDueAt() // used if storage cuts the answer off before its first row
	if len(p.dues) > 0 {
		horizon = p.dues[len(p.dues)-1].At
	}

	if p.after == (lane.DueTime{}) {
		c.times, c.keys = make([]lane.DueTime, 0, len(p.dues)), nil
	}

	for _, m := range p.dues {
		if !slices.Contains(removed, m.DueTime) {
			c.times = append(c.times, m.DueTime)
			c.putKey(m)
		}
	}

	c.isLoaded, c.hasMore, c.kept, c.firstUndecided = true, p.more, len(c.times), nil
	c.updateHorizon()
	if len(c.times) == 0 && c.hasMore {
		c.isLoaded, c.hasMore, c.nextAt = false, false, horizon
	}

	for _, m := range added {
		if !slices.Contains(removed, m.DueTime) {
			c.addDue(m)
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
	c.times, c.keys, c.firstUndecided = nil, nil, nil
	c.isLoaded, c.hasMore, c.nextAt = false, false, now
	c.reading, c.added, c.removed = nil, nil, nil
}

// removeDues removes the due times of messages that were moved, cancelled or rescheduled.
func (c *dueCache) removeDues(gone ...lane.DueTime) {
	for _, d := range gone {
		if c.progress[d] != moveDecided {
			c.firstUndecided = nil
		}
		delete(c.progress, d)
		delete(c.keys, d)
	}

	if c.reading != nil {
		c.removed = append(c.removed, gone...)
	}

	for _, d := range gone {
		if i, found := slices.BinarySearchFunc(c.times, d, compareDueTimes); found {
			c.times = slices.Delete(c.times, i, i+1)
		}
	}

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
	low     int64 // duePositions.searchFrom when the read began

	entries []readyMessage
	gone    []lane.DueTime // due times of messages that were cancelled or rescheduled
	took    time.Duration  // duration of the read, without the search for positions
	err     error
}

// readDue reads due messages, and finds their positions. The parameter low is the present result
// of duePositions.searchFrom.
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
