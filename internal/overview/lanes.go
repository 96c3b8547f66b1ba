package overview

import (
	"context"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Lane is the state of a lane. Accepted, Counts and Waiting come from one snapshot of the control
// rows. So Accepted is the sum of Waiting and of all numbers in Counts.
type Lane struct {
	Number int
	At     time.Time // time of the snapshot
	// all messages ever appended to the log, including copies from the previous epoch
	Accepted int64
	Counts   lane.Counts
	Waiting  int64 // accepted messages that are not in Counts

	Scheduled, Queued, Retrying int64 // waiting messages by stage
	Exact                       bool  // Scheduled, Queued and Retrying are exact

	// time from which the oldest waiting message could be sent; zero = none found
	OldestAt      time.Time
	Rate1         Rate      // rate in the last minute whose counters are complete
	Rate15        Rate      // rate in the last fifteen minutes whose counters are complete
	RatesUntil    time.Time // end of the last minute whose counters are complete; zero = not known
	DrainEstimate DrainEstimate

	Held   bool   // a process holds the lane, or crashed as its holder
	Holder string // process that became the holder last
	Fence  int64
	// when the first held or scheduled message can be sent; zero = none, or an operator must act
	NextDue     time.Time
	LastError   string // error of the last attempt that did not deliver its message
	LastErrorAt time.Time
	Pauses      []weir.Pause // operators' present pauses of the lane and of its keys
	// why the lane sends no message; zero = the lane can send messages
	PauseCause PauseCause
	// contracts that the settings lack, and for which messages wait
	Missing []lane.MissingContract
	Brakes  []lane.Brake // rejections for which messages wait
	// the lane paused because of the CMS; no verdict and no operator's resume followed yet
	FoundDown bool

	LastDeliveredAt time.Time // if it is later than LastErrorAt, the error is over
	// message whose attempt is under way and takes long; "" = none is known
	AttemptingID    string
	AttemptingSince time.Time
	Refused         RefusedKeys // keys that the CMS refuses, although it may take others
}

// Rate is a number of messages per minute.
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
	// In each lane, countStages reads at most maxLanePages pages of held messages and as many pages
	// of scheduled messages.
	maxLanePages = 5
	// findOldest reads at most maxOldestRows rows of the log, from the lane's cursor on. It needs
	// the first queued message that is not held. This is usually the message of the first row.
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

// Lane returns the state of one lane, or an error of the kind weir.NotFound if there is no such
// lane.
func (o *Overview) Lane(ctx context.Context, number int) (Lane, error) {
	if number < 0 || number >= o.Store.Lanes {
		return Lane{}, &weir.Error{Kind: weir.NotFound, Op: "lane",
			Message: "there is no such lane"}
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
		Number: number, At: now, Accepted: c.Head.Next - 1, Counts: c.Tail.Counts,
		Waiting: c.WaitingCount(),
		Exact:   true,
		Held:    c.Tail.IsOpen, Holder: c.Tail.Holder, Fence: c.Tail.Fence, NextDue: c.Tail.DueAt(),
		LastError: c.Tail.LastError, LastErrorAt: c.Tail.LastErrorAt, Pauses: c.Pauses(now),
		PauseCause: o.firstPauseCause(c, now), FoundDown: c.Tail.PauseCount > 0,
		Missing: c.MissingContracts(), Brakes: c.Tail.Brakes,
		LastDeliveredAt: c.Tail.LastDeliveredAt, AttemptingID: c.Tail.AttemptingID,
		AttemptingSince: c.Tail.AttemptingSince,
	}
	if l.Waiting > 0 {
		if err := o.countStages(ctx, c, &l); err != nil {
			return Lane{}, err
		}
		if l.Refused, err = o.ReadRefusedKeys(ctx, number, c); err != nil {
			return Lane{}, err
		}
	}

	l.Rate1, l.Rate15 = o.readRate(ctx, number, 1), o.readRate(ctx, number, 15)
	if o.Rates != nil {
		l.RatesUntil = o.Rates.CompleteUntil()
	}

	if pace := o.readPace(ctx, number); !l.isStanding(pace) {
		l.DrainEstimate = l.estimateDrain(pace)
	}

	return l, nil
}

// standingAfter is the least time without an outcome after which a lane counts as standing.
const standingAfter = 10 * time.Second

// isStanding reports whether messages could be sent, and for some time no attempt has ended: the
// CMS hangs, or the holder died. An estimate from the pace of earlier minutes would be untrue then.
func (l *Lane) isStanding(pace Rate) bool {
	if l.OldestAt.IsZero() {
		return false
	}

	moved := clock.Later(clock.Later(l.LastDeliveredAt, l.LastErrorAt), l.OldestAt)
	limit := standingAfter
	if pace.Known && pace.PerMinute > 0 { // a slow CMS needs longer for each message
		limit = max(limit, toDuration(3/pace.PerMinute))
	}

	return l.At.Sub(moved) > limit
}

// countStages counts the waiting messages by stage, and finds the oldest one. It reads rows that
// can be newer than the snapshot c. So it limits the counts to the number of waiting messages in
// the snapshot.
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

// findOldest sets l.OldestAt. It compares the times from which these messages wait:
//   - all held messages that were scheduled and not replayed;
//   - of the replayed held messages, the one with the lowest sequence number;
//   - of all other held messages, the one with the lowest sequence number;
//   - the first queued message of the log that is not held.
func (o *Overview) findOldest(ctx context.Context, c lane.Control, held []lane.HeldMessage,
	l *Lane) error {
	first := map[bool]int64{} // lowest sequence number; the map's key is HeldMessage.Replayed
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

// estimateDrain estimates the time until the lane's queued and retrying messages are sent at the
// given pace. If the lane has such messages, the estimate is known only if the pace is known and
// the lane is not paused.
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

// maxEstimate bounds an estimate, to prevent an overflow of time.Duration.
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
