package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
)

// A due message goes behind the messages that were filed before its due time, and before those that were filed later.
// If its move begins on time, shortly before the due time, that position is the end of the log. But at the due time the
// lane may have no holder (it was paused or closed, the CMS was away, no process ran), or the holder may not have read
// the scheduled message yet. Then the holder finds the position afterwards, by the times at which the log's messages
// were accepted. Otherwise a newer message of the key, filed meanwhile, would be sent before the due one. But a
// position is never before a message that may have been sent.

const (
	// acceptTimesPage is the number of messages in one read of times of acceptance.
	acceptTimesPage = 250
	// maxAcceptTimes bounds the remembered times of acceptance.
	maxAcceptTimes = 20_000
)

// duePositions finds the positions of due messages in the log.
type duePositions struct {
	laneScope
	accepted  acceptTimes
	sentBelow int64 // no message from this number on was sent; 0 = not known; see lane.Tail
	sentHere  int64 // no message from this number on was sent by this session; 0 = it has sent none
}

// acceptTimes remembers when messages of the log were accepted. So for several messages that are moved late, and were
// due at about the same time, storage is read only once. It is safe for concurrent use.
type acceptTimes struct {
	mu   sync.Mutex
	seqs []int64             // the keys of "at", in order
	at   map[int64]time.Time // by sequence number; zero = retention has removed the message
}

// narrowRange raises "low" and lowers "end", as far as the remembered times allow. The first message that was accepted
// at "acceptedAt" or later stays in the range, or its number is the new end.
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

// addPage remembers the times of a part of the log that was read from seq on. If nothing was found, retention has
// removed the message seq, so it was accepted long ago.
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

// findPositions sets logPos of each entry: the number of the first log message that goes after the entry. For an entry
// that is not late that is the end of the log. No log message from read.low on was sent. If low is 0, it is not known
// which messages were sent, and logPos is the end of the log for late entries, too.
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

// findAcceptedAfter returns the number of the first message between low and end that was accepted at the given time or
// later; end if there is none. That message is mostly near the end, so findAcceptedAfter first reads the last page.
// Then it halves the rest until one page is left, and reads that page. If the page has fewer messages than numbers,
// because retention has removed some, findAcceptedAfter goes on by halving.
func (p *duePositions) findAcceptedAfter(ctx context.Context, at time.Time, low, end int64) (int64, error) {
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

// limitSent sets sentBelow if it is not known. It sets it to head's next number, or to sentHere if that is higher,
// because no message from there on was sent. The control rows must have been read after this session raised the fence.
func (p *duePositions) limitSent(control lane.Control) {
	if p.sentBelow == 0 {
		p.sentBelow = max(control.Head.Next, p.sentHere)
	}
}

// isOutdated reports whether a read may have put its messages too far behind. If sentBelow was not known when the read
// began, the read took the end of the log as position. That is too far behind if sentBelow is known now, and is lower.
func (p *duePositions) isOutdated(read *dueRead) bool {
	return read.low == 0 && p.sentBelow != 0 && p.sentBelow < read.control.Head.Next
}

// recordSending is called before a message is sent.
func (p *duePositions) recordSending(e *lane.Entry) {
	p.sentHere = max(p.sentHere, e.NextLogSeq())
	if p.sentBelow != 0 {
		p.sentBelow = max(p.sentBelow, e.NextLogSeq())
	}
}
