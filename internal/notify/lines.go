package notify

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weir/internal/lane/outbox"
)

const (
	// maxQueuedPerLine limits the events in memory for one line, and maxQueued those for all lines
	// of an outbox. All other events stay in their rows.
	maxQueuedPerLine = 50
	maxQueued        = 1000
	// A line reads on when it has at most refillAt events in memory.
	refillAt = maxQueuedPerLine / 2
)

// line has the due events of an outbox for one host, or for one address that has a backoff of its
// own. Its first events are in memory, in queue. The others stay in their rows: a line keeps the
// position up to which its rows were read, and reads on when its queue has room. So no row is
// written because its receiver is slow or away.
type line struct {
	name       string // the host or the address
	host       string
	queue      []queuedMail
	lastServed int // requestCount at the last request

	// The line's rows up to the key readUpTo are in the queue, in flight or finished, if the line
	// is behind.
	behindSince time.Time // zero = the line is not behind: it was read to its end
	readUpTo    string
	// the last page did not fill the line's queue, so its rows are rare, and the next page is
	// larger
	isSparse bool
}

func (l *line) isBehind() bool { return !l.behindSince.IsZero() }

// readOnlyUpTo records that the line's first row behind the key has no place in the queue.
func (l *line) readOnlyUpTo(key string, now time.Time) {
	l.readUpTo, l.isSparse = key, false
	if !l.isBehind() {
		l.behindSince = now
	}
}

// fallBehind records that a row behind the key is not in the queue any more.
func (l *line) fallBehind(key string, now time.Time) {
	if !l.isBehind() || key < l.readUpTo {
		l.readUpTo = key
	}
	if !l.isBehind() || now.Before(l.behindSince) {
		l.behindSince = now
	}
}

// lines has the lines of an outbox, and the positions of the reads. It outlives a session, so that
// the next one does not read a long outbox from the beginning. The positions are only hints,
// because another process can have changed the outbox: wholeInterval bounds the time for which a
// wrong position can hold back an event.
type lines struct {
	byName    map[string]*line
	next      string    // rows up to this key were read, except those of lines that are behind
	wholeAt   time.Time // time of the next read from the beginning
	isPartial bool      // the present read did not begin at the beginning
}

func newLines() *lines { return &lines{byName: map[string]*line{}} }

// forgetPositions records that the outbox was empty.
func (s *lines) forgetPositions() {
	for _, l := range s.byName {
		l.behindSince, l.readUpTo, l.isSparse = time.Time{}, "", false
	}
	s.next, s.isPartial = "", false
}

// findLine returns the line of an event's address.
func (t *outboxSession) findLine(to endpoint) *line {
	name := to.host
	if _, has := t.sender.backoffs.retryAt(to.url); has {
		name = to.url
	}
	return t.lines.ensureLine(name, to.host)
}

func (s *lines) ensureLine(name, host string) *line {
	l := s.byName[name]
	if l == nil {
		l = &line{name: name, host: host}
		s.byName[name] = l
	}
	return l
}

// list returns the lines in the order of their last requests.
func (s *lines) list() []*line {
	return slices.SortedFunc(maps.Values(s.byName), func(a, b *line) int {
		return cmp.Or(cmp.Compare(a.lastServed, b.lastServed), cmp.Compare(a.name, b.name))
	})
}

// isBehind reports whether a line is behind.
func (s *lines) isBehind() bool {
	for _, l := range s.byName {
		if l.isBehind() {
			return true
		}
	}
	return false
}

func (s *lines) countQueued() (n int) {
	for _, l := range s.byName {
		n += len(l.queue)
	}
	return n
}

// mergeLines joins the line of each address whose backoff is over to the line of its host, and
// forgets lines without events.
func (t *outboxSession) mergeLines() {
	for _, l := range t.lines.list() {
		_, has := t.sender.backoffs.retryAt(l.name)
		if l.name != l.host && !has {
			into := t.lines.ensureLine(l.host, l.host)
			into.queue = append(into.queue, l.queue...)
			if l.isBehind() {
				into.fallBehind(l.readUpTo, l.behindSince)
			}
			l.queue, l.behindSince = nil, time.Time{}
		}

		if len(l.queue) == 0 && !l.isBehind() {
			delete(t.lines.byName, l.name)
		}
	}
}

// allowedAtOnce returns how many requests of a line may be in flight now.
func (t *outboxSession) allowedAtOnce(l *line) int {
	now := t.sender.Now()
	return min(t.sender.backoffs.allowedAtOnce(l.host, now),
		t.sender.backoffs.allowedAtOnce(l.name, now))
}

// retryAt returns the end of the backoff of a line's host or address.
func (t *outboxSession) retryAt(l *line) time.Time {
	host, _ := t.sender.backoffs.retryAt(l.host)
	own, _ := t.sender.backoffs.retryAt(l.name)
	if own.After(host) {
		return own
	}
	return host
}

// hasRoom reports whether a line takes another event into memory.
func (t *outboxSession) hasRoom(l *line) bool {
	return len(l.queue) < maxQueuedPerLine && t.lines.countQueued() < maxQueued &&
		t.allowedAtOnce(l) > 0
}

// findRefillable returns the line with the oldest rows that are to be read now; nil = there is
// none.
func (t *outboxSession) findRefillable() *line {
	var first *line
	for _, l := range t.lines.list() {
		if l.isBehind() && len(l.queue) <= refillAt && t.hasRoom(l) &&
			(first == nil || l.readUpTo < first.readUpTo) {
			first = l
		}
	}

	return first
}

// leaveQueue takes a line's events out of memory, while its host or address is in its backoff. The
// line reads them again after the backoff.
func (t *outboxSession) leaveQueue(l *line) {
	for _, m := range l.queue {
		t.leaveInRow(l, m.Event)
	}
	l.queue = nil
}

// leaveInRow takes an event out of memory. Its line reads it again.
func (t *outboxSession) leaveInRow(l *line, m outbox.Event) {
	delete(t.inProgress, mailKey(m))
	l.fallBehind(m.KeyBefore(), t.sender.Now())
}
