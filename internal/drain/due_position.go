package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
)

// When a scheduled message becomes due, the holder gives the message a position in its key's order:
// after the messages that were accepted before its due time, and before the messages that were
// accepted later. This step is called the move of the message.
//
// If the move begins shortly before the due time, the position is the end of the log. But at the
// due time the lane may have no holder, for example because no process runs. Or the holder may not
// have read the scheduled message yet. In both cases the move is late. The holder then finds the
// position from the times at which the log's messages were accepted. Otherwise a newer message of
// the key would be sent before the due message.
//
// A position is never before a log message of its key that may have been sent already. While due
// messages wait for their positions, messages of other keys are sent. So the holder then records
// for each key how far it has sent. The next holder learns from tail how far the lane was sent, and
// from the log which messages before that were not (session.loadUnsent). After a crash it puts a
// late message at the end of the log.

const (
	// acceptTimesPage is the number of messages in one read of acceptance times.
	acceptTimesPage = 250
	// maxAcceptTimes bounds the acceptance times in memory.
	maxAcceptTimes = 20_000
	// maxSentKeys bounds the keys of duePositions.sentOf.
	maxSentKeys = 5_000
)

// duePositions finds the positions of due messages among the log's messages.
type duePositions struct {
	laneScope
	accepted acceptTimes
	// all messages that were sent have lower sequence numbers, except those of sentOf; 0 = not
	// known; see lane.Tail
	sentBelow int64
	// by key hash: all messages of the key that this session sent while due messages waited have
	// lower sequence numbers
	sentOf map[string]int64
	// by key hash: the first log message below sentBelow that the former holder left unsent,
	// because the messages of its key waited for a due one
	unsent map[string]int64
	// all messages of "unsent" have this sequence number or a greater one
	unsentFrom int64
	// all messages that this session sent have lower sequence numbers; 0 = it sent none
	sentHere int64
}

// acceptTimes remembers when messages of the log were accepted, so that later searches read storage
// less often. acceptTimes is safe for concurrent use.
type acceptTimes struct {
	mu   sync.Mutex
	seqs []int64             // the keys of "at", in order
	at   map[int64]time.Time // by sequence number; zero = retention has removed the message
}

// narrowRange narrows the range of a search for the first message that was accepted at acceptedAt
// or later. The range has the sequence numbers from low to end-1. narrowRange raises low and lowers
// end as far as the remembered times allow. The wanted message stays in the range, or its number is
// the new end.
func (a *acceptTimes) narrowRange(acceptedAt time.Time, low, end int64) (int64, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearch(a.seqs, low)
	j, _ := slices.BinarySearch(a.seqs, end)
	known := a.seqs[i:max(i, j)]
	n, _ := slices.BinarySearchFunc(known, acceptedAt,
		func(seq int64, at time.Time) int { return a.at[seq].Compare(at) })
	if n > 0 {
		low = known[n-1] + 1
	}

	if n < len(known) {
		end = known[n]
	}

	return low, end
}

// addPage remembers the acceptance times of found, which is the result of a read of the log from
// seq on. If found is empty, retention has removed the message seq, and addPage remembers the zero
// time for seq.
func (a *acceptTimes) addPage(seq int64, found []*lane.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil || len(a.at) > maxAcceptTimes {
		a.at, a.seqs = map[int64]time.Time{}, nil
	}

	if len(found) == 0 {
		a.at[seq], a.seqs = time.Time{}, append(a.seqs, seq)
	}

	for _, e := range found {
		a.at[e.Seq()], a.seqs = e.Message.AcceptedAt, append(a.seqs, e.Seq())
	}

	slices.Sort(a.seqs)
	a.seqs = slices.Compact(a.seqs)
}

// findPositions sets logPos of each entry: the sequence number of the first log message that goes
// after the entry. If the entry's due time has not passed, logPos is the end of the log. If the due
// time has passed, logPos can be lower, but never below read.low, because log messages below
// read.low may have been sent; see searchFrom. If read.low is 0, it is not known which messages were sent, and
// logPos is always the end of the log.
func (p *duePositions) findPositions(ctx context.Context, read *dueRead) error {
	low, end, now := read.low, read.control.Head.Next, p.now()
	for i := range read.entries {
		e := &read.entries[i]
		e.logPos = end
		if low == 0 || !e.due.At.Before(now) {
			continue
		}

		pos, err := p.findAcceptedAfter(ctx, e.due.At, low, end)
		if err != nil {
			return err
		}

		e.logPos = min(max(pos, e.due.Seq+1), max(end, low))
	}

	return nil
}

// findAcceptedAfter returns the sequence number of the first message from low to end-1 that was
// accepted at the given time or later. If there is no such message, it returns end. The message is
// mostly near the end, so findAcceptedAfter reads the last page of the range first. After that it
// halves the range until one page is left, and reads that page. If retention has removed messages
// of a page, it halves the range further.
func (p *duePositions) findAcceptedAfter(ctx context.Context, at time.Time, low,
	end int64) (int64, error) {
	isNearEnd, hasGap := true, false
	for {
		if low, end = p.accepted.narrowRange(at, low, end); low >= end {
			return end, nil
		}

		from, rows := low, end-low
		switch {
		case hasGap, rows > acceptTimesPage && !isNearEnd:
			from, rows = (low+end)/2, 1
		case rows > acceptTimesPage:
			from, rows = end-acceptTimesPage, acceptTimesPage
		}

		found, err := p.store.ScanLog(ctx, p.lane, from, int(rows))
		if err != nil {
			return 0, err
		}

		p.accepted.addPage(from, found)
		isNearEnd, hasGap = false, int64(len(found)) < rows
	}
}

// limitSent sets sentBelow if sentBelow is not known. The new value is the greater of head's next
// sequence number and sentHere: all messages that were sent have lower sequence numbers. The
// control rows must have been read after this session raised the fence.
func (p *duePositions) limitSent(control lane.Control) {
	if p.sentBelow == 0 {
		p.sentBelow = max(control.Head.Next, p.sentHere)
	}
}

// addUnsent records that the former holder left a message of the log unsent. Messages are added in
// the order of their sequence numbers.
func (p *duePositions) addUnsent(e *lane.Entry) {
	if p.unsent == nil {
		p.unsent, p.unsentFrom = map[string]int64{}, e.Seq()
	}
	if _, isKnown := p.unsent[e.KeyHash()]; !isKnown {
		p.unsent[e.KeyHash()] = e.Seq()
	}
}

// searchFrom returns the lowest sequence number that a position can have; 0 = not known.
func (p *duePositions) searchFrom() int64 {
	if p.unsent == nil {
		return p.sentBelow
	}
	return min(p.sentBelow, p.unsentFrom)
}

// sentBelowOf returns a sequence number: all messages of the key that were sent have lower ones;
// 0 = not known.
func (p *duePositions) sentBelowOf(keyHash string) int64 {
	below := p.sentBelow
	if unsent, ok := p.unsent[keyHash]; ok {
		below = min(below, unsent)
	}
	return max(below, p.sentOf[keyHash])
}

// sentBelowAll returns sentBelow for the next holder: all messages that were sent have lower
// sequence numbers; 0 = not known.
func (p *duePositions) sentBelowAll() int64 {
	if p.sentBelow == 0 {
		return 0
	}
	return max(p.sentBelow, p.sentHere)
}

// isOutdated reports whether another read could find lower positions. If sentBelow was not known
// when the read began, the position of each message is the end of the log. A lower position is
// possible if sentBelow is known by now, and is less than that end.
func (p *duePositions) isOutdated(read *dueRead) bool {
	return read.low == 0 && p.sentBelow != 0 && p.sentBelow < read.control.Head.Next
}

// recordSending is called before a message is sent. hasDue reports whether due messages wait for
// their positions.
func (p *duePositions) recordSending(e *lane.Entry, hasDue bool) {
	p.sentHere = max(p.sentHere, e.NextLogSeq())
	if p.sentBelow == 0 {
		return
	}

	if !hasDue || len(p.sentOf) >= maxSentKeys {
		p.sentBelow, p.sentOf, p.unsent = max(p.sentBelow, p.sentHere), nil, nil
		return
	}

	if p.sentOf == nil {
		p.sentOf = map[string]int64{}
	}
	p.sentOf[e.KeyHash()] = max(p.sentOf[e.KeyHash()], e.NextLogSeq())
}

const (
	// Before a message is due, the holder moves it from the scheduled messages into its key's
	// queue. The move begins at least leadMin and at most leadMax before the due time. leadMax is
	// short, because an upstream can no longer reschedule a moved message. If storage takes longer
	// than leadMax for a move, the message is sent late.
	leadMin, leadMax = 50 * time.Millisecond, time.Second
	// Until a process has measured a step of a move, it assumes that the step takes firstLatency.
	// That is about the duration of a request that storage refuses once and that is then repeated.
	firstLatency = 125 * time.Millisecond
	// A span of measurements ends after latencySpan measurements, or after latencyAge. Storage
	// refuses only a few requests in a thousand, and shorter spans would often have none of these
	// slow requests.
	latencySpan = 256
	latencyAge  = 10 * time.Minute
)

// leadTime measures how long storage takes for the two steps of a move: the read of the messages,
// and the write of their positions. From these durations it derives how long before the due time a
// move has to begin. leadTime is safe for concurrent use.
type leadTime struct {
	mu          sync.Mutex
	read, write maxLatency
}

// addMeasurement records how long the steps of a move took; zero = the step was not measured.
func (l *leadTime) addMeasurement(now time.Time, read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read.addLatency(now, read)
	l.write.addLatency(now, write)
}

// current returns how long before the due time a move begins. A move that waits for other moves
// begins earlier; see dueMover.eachTurn.
func (l *leadTime) current() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(l.read.longest()+l.write.longest(), leadMin), leadMax)
}

// maxLatency keeps the longest measurement of the current span and of the previous span. For so few
// measurements the maximum is as good as a high percentile.
type maxLatency struct {
	// the longest measurement of the current and of the previous span
	current, previous time.Duration
	count             int       // number of measurements in the current span
	since             time.Time // start of the current span
	hasBegun          bool
}

func (m *maxLatency) addLatency(now time.Time, took time.Duration) {
	if took <= 0 {
		return
	}

	if !m.hasBegun {
		m.hasBegun, m.since, m.previous = true, now, firstLatency
	}

	if m.count >= latencySpan || now.Sub(m.since) > latencyAge {
		m.previous, m.current, m.count, m.since = m.current, 0, 0, now
	}

	m.current, m.count = max(m.current, took), m.count+1
}

func (m *maxLatency) longest() time.Duration {
	if !m.hasBegun {
		return firstLatency
	}
	return max(m.current, m.previous)
}
