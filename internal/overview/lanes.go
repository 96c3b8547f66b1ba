package overview

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/overview/lists"
	"weir/internal/weir"
)

// Lane is the state of a lane. Accepted, Counts and Waiting come from one snapshot of the control rows, so that they
// balance.
type Lane struct {
	Number   int
	At       time.Time // time of the snapshot
	Accepted int64     // all messages that were ever in the log, with copies from the previous epoch
	Counts   lane.Counts
	Waiting  int64 // accepted messages that are not in Counts

	Scheduled, Queued, Retrying int64 // waiting messages by stage
	Exact                       bool  // all waiting messages were counted

	OldestAt      time.Time // time since which the oldest waiting message can be sent; zero = found no such message
	Rate1         Rate      // rate in the last minute whose counters are complete
	Rate15        Rate      // rate in the last fifteen minutes whose counters are complete
	RatesUntil    time.Time // end of the last minute whose counters are complete; zero = not known
	DrainEstimate DrainEstimate

	Held        bool   // a holder has the lane, or died before it handed the lane over
	Holder      string // process that raised the fence last
	Fence       int64
	NextDue     time.Time // when the first held or scheduled message can be sent; zero = an operator has to act first
	LastError   string    // error of the last attempt that did not deliver its message
	LastErrorAt time.Time
	Pauses      []weir.Pause // present pauses of operators, of the lane and of keys
	PauseCause  PauseCause   // why the lane sends no message; zero = it may send
	FoundDown   bool         // since the lane last paused for the CMS, the CMS has judged no message of the lane
}

// Rate is a number of messages per minute, of Rates.Rate or Rates.Pace.
type Rate struct {
	PerMinute float64
	Known     bool
}

// DrainEstimate is the estimated time until all queued and retrying messages are sent.
type DrainEstimate struct {
	In    time.Duration
	Known bool
}

const (
	// In each lane, at most maxLanePages pages of held messages and maxLanePages pages of scheduled messages are
	// counted.
	maxLanePages = 5
	// maxOldestRows bounds the rows of the log that are read to find the oldest message. They begin at the cursor.
	// The search ends at the first queued message that is not held, which is usually in the first row.
	maxOldestRows = 200
)

// Lanes returns the state of all lanes.
func (o *Overview) Lanes(ctx context.Context) ([]Lane, error) {
	lanes := make([]Lane, o.Store.Lanes)
	err := lane.ForEach(len(lanes), func(n int) (err error) {
		lanes[n], err = o.readLane(ctx, n)
		return err
	})
	if err != nil {
		return nil, readError("lanes", err)
	}
	return lanes, nil
}

// Lane returns the state of one lane, or NotFound.
func (o *Overview) Lane(ctx context.Context, number int) (Lane, error) {
	if number < 0 || number >= o.Store.Lanes {
		return Lane{}, &weir.Error{Kind: weir.NotFound, Op: "lane", Message: "there is no such lane"}
	}
	l, err := o.readLane(ctx, number)
	if err != nil {
		return Lane{}, readError("lane", err)
	}
	return l, nil
}

func (o *Overview) readLane(ctx context.Context, number int) (Lane, error) {
	c, err := o.Store.ReadControl(ctx, number)
	if err != nil {
		return Lane{}, err
	}
	now := o.Now()
	l := Lane{
		Number: number, At: now, Accepted: c.Head.Next - 1, Counts: c.Tail.Counts, Waiting: c.WaitingCount(),
		Exact: true,
		Held:  c.Tail.IsOpen, Holder: c.Tail.Holder, Fence: c.Tail.Fence, NextDue: c.Tail.DueAt(),
		LastError: c.Tail.LastError, LastErrorAt: c.Tail.LastErrorAt, Pauses: c.Pauses(now),
		PauseCause: o.firstPauseCause(c, now), FoundDown: c.Tail.PauseCount > 0,
	}
	if l.Waiting > 0 {
		if err := o.countStages(ctx, c, &l); err != nil {
			return Lane{}, err
		}
	}
	l.Rate1, l.Rate15 = o.readRate(ctx, number, 1), o.readRate(ctx, number, 15)
	if o.Rates != nil {
		l.RatesUntil = o.Rates.CompleteUntil()
	}
	l.DrainEstimate = l.estimateDrain(o.readPace(ctx, number))
	return l, nil
}

// countStages counts waiting messages by stage, and finds the oldest one. The rows are read after the snapshot and can
// have changed since. So the counts are limited to the number of waiting messages in the snapshot.
func (o *Overview) countStages(ctx context.Context, c lane.Control, l *Lane) error {
	waiting, err := lists.Reader{Store: o.Store}.ReadWaiting(ctx, l.Number, maxLanePages)
	if err != nil {
		return err
	}
	l.Exact = waiting.IsComplete
	l.Scheduled = min(int64(len(waiting.DueTimes)), l.Waiting)
	for _, h := range waiting.Held {
		if h.Tried && l.Retrying < l.Waiting-l.Scheduled {
			l.Retrying++
		}
	}
	l.Queued = l.Waiting - l.Scheduled - l.Retrying
	return o.findOldest(ctx, c, waiting.Held, l)
}

// findOldest finds the time from which the oldest message waits. It compares four messages. Two have the lowest
// sequence number: one of the held messages that were replayed, and one of those that were not. The third is the held
// message that was due first. The fourth is the next queued message of the log.
func (o *Overview) findOldest(ctx context.Context, c lane.Control, held []lane.HeldMessage, l *Lane) error {
	first := map[bool]int64{} // the lowest sequence number, by whether the message was replayed
	for _, h := range held {
		if at := h.ReleasedAt(); !at.IsZero() && !h.Replayed {
			l.noteWaitingSince(at)
		} else if first[h.Replayed] == 0 || h.Seq < first[h.Replayed] {
			first[h.Replayed] = h.Seq
		}
	}
	for _, seq := range first {
		entries, _, err := o.Store.ReadMany(ctx, l.Number, []int64{seq})
		if err != nil {
			return err
		}
		for _, e := range entries {
			l.noteWaitingSince(e.WaitingSince())
		}
	}
	if c.Tail.Cursor >= c.Head.Next {
		return nil
	}
	entries, err := o.Store.ScanLog(ctx, l.Number, c.Tail.Cursor, maxOldestRows)
	for _, e := range entries {
		if e.Stage == weir.Queued && !e.IsHeld {
			l.noteWaitingSince(e.Message.AcceptedAt)
			break
		}
	}
	return err
}

func (l *Lane) noteWaitingSince(at time.Time) {
	if l.OldestAt.IsZero() || at.Before(l.OldestAt) {
		l.OldestAt = at
	}
}

// estimateDrain returns the estimate for the lane's pace. If the lane has queued or retrying messages, the estimate is
// known only if the pace is known and the lane is not paused.
func (l *Lane) estimateDrain(pace Rate) DrainEstimate {
	left := float64(l.Waiting - l.Scheduled)
	switch {
	case left == 0:
		return DrainEstimate{Known: true}
	case !pace.Known || l.PauseCause.By != "":
		return DrainEstimate{}
	}
	return DrainEstimate{In: toDuration(left / pace.PerMinute), Known: true}
}

// maxEstimate is the largest estimate, which prevents an overflow of a time.Duration.
const maxEstimate = 10 * 365 * 24 * time.Hour

func toDuration(minutes float64) time.Duration {
	if minutes > maxEstimate.Minutes() {
		return maxEstimate
	}
	return time.Duration(minutes * float64(time.Minute))
}

// Totals are sums over lanes.
type Totals struct {
	Accepted, Waiting int64
	Counts            lane.Counts
}

// SumLanes returns the sums over lanes.
func SumLanes(lanes []Lane) Totals {
	var t Totals
	for _, l := range lanes {
		t.Accepted += l.Accepted
		t.Waiting += l.Waiting
		t.Counts.Delivered += l.Counts.Delivered
		t.Counts.Dead += l.Counts.Dead
		t.Counts.Cancelled += l.Counts.Cancelled
		t.Counts.Superseded += l.Counts.Superseded
		t.Counts.Discarded += l.Counts.Discarded
		t.Counts.Moved += l.Counts.Moved
	}
	return t
}
