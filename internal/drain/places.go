package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
)

// A message that falls due goes behind what was filed before its moment, and before what was
// filed after it. At the moment itself the end of the log is that place. Where nobody was at
// the lane then (it was paused or closed, the CMS away, no process there) or the log was not
// read up to the message, it is looked for afterwards, by the time at which the log's messages
// were accepted: else a newer message of its key, filed meanwhile, would be sent before it.
// But never is a place given in front of something that may have been sent already.

const (
	// acceptedStretch is how much of the log is read at once for the times of acceptance.
	acceptedStretch = 250
	// acceptedMost bounds how many of them are remembered.
	acceptedMost = 20_000
)

// acceptances remembers when messages of the log were accepted, so that storage is read once for
// all messages that fall due late at about one moment. Safe for concurrent use.
type acceptances struct {
	mu   sync.Mutex
	seqs []int64 // in order
	at   map[int64]time.Time
}

// narrow brings low and end together around the first place of the messages accepted at a moment
// or later, as far as it is known.
func (a *acceptances) narrow(moment time.Time, low, end int64) (int64, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearch(a.seqs, low)
	j, _ := slices.BinarySearch(a.seqs, end)
	known := a.seqs[i:max(i, j)]
	n, _ := slices.BinarySearchFunc(known, moment,
		func(seq int64, moment time.Time) int { return a.at[seq].Compare(moment) })
	if n > 0 {
		low = known[n-1] + 1
	}
	if n < len(known) {
		end = known[n]
	}
	return low, end
}

// learn takes in a stretch of the log that begins at a number. A message that is missing was
// final long ago.
func (a *acceptances) learn(seq int64, found []*lane.Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil || len(a.at) > acceptedMost {
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

// filedBy finds the first place between low and end of the messages that were filed at a moment
// or later. The place is mostly near the end, so filedBy reads a stretch there first, and then
// halves the rest until one stretch is left. A stretch with gaps that retention made is shorter.
func (r *run) filedBy(ctx context.Context, moment time.Time, low, end int64) (int64, error) {
	near, gap := true, false
	for {
		if low, end = r.accepted.narrow(moment, low, end); low >= end {
			return end, nil
		}
		from, rows := low, end-low
		switch {
		case gap, rows > acceptedStretch && !near:
			from, rows = (low+end)/2, 1
		case rows > acceptedStretch:
			from, rows = end-acceptedStretch, acceptedStretch
		}
		found, err := r.Store.ScanLog(ctx, r.lane, from, int(rows))
		if err != nil {
			return 0, err
		}
		r.accepted.learn(from, found)
		near, gap = false, int64(len(found)) < rows
	}
}

// bound takes in, where it is not known how far the log was sent, how far that can be at most.
// control was read under this fence.
func (r *run) bound(control lane.Control) {
	if r.taken == 0 {
		r.taken = max(control.Head.Next, r.sent)
	}
}

// taking notes that a message is about to be sent.
func (r *run) taking(e *lane.Entry) {
	r.sent = max(r.sent, e.NextLogSeq())
	if r.taken != 0 {
		r.taken = max(r.taken, e.NextLogSeq())
	}
}
