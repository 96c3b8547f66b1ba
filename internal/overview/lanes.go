package overview

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Lane is how a lane stands. Its counts are of one snapshot, so that they balance.
type Lane struct {
	Number   int
	At       time.Time // of the snapshot
	Accepted int64
	Counts   lane.Counts
	Waiting  int64

	Scheduled, Queued, Retrying int64 // what waits, by stage
	Exact                       bool  // the stages were counted to the end

	OldestAt time.Time // since when the oldest waits that may go; zero = none does
	Rate1    Rate      // over the last minute
	Rate15   Rate      // over the last fifteen
	Empty    Empty

	Held        bool // a holder is at work, or died at it
	Holder      string
	Fence       int64
	NextDue     time.Time
	LastError   string
	LastErrorAt time.Time
	Pauses      []weir.Pause // the operator's in force, of the lane and of keys
	Halt        Halt         // why nothing of the lane is sent
}

// Rate is how many messages became final a minute.
type Rate struct {
	PerMinute float64
	Known     bool
}

// Empty is how long it takes until nothing waits that may go now.
type Empty struct {
	In    time.Duration
	Known bool
}

const (
	// lanePages is how many pages of lines and of scheduled messages are counted in a lane.
	lanePages = 5
	// oldestRows is how far from the cursor the oldest is looked for in the log: there the
	// first is it, but for those that are scheduled or held.
	oldestRows = 200
)

// Lanes tells how all lanes stand.
func (o *Overview) Lanes(ctx context.Context) ([]Lane, error) {
	lanes := make([]Lane, o.Store.Lanes)
	err := lane.Each(len(lanes), func(n int) (err error) {
		lanes[n], err = o.lane(ctx, n)
		return err
	})
	if err != nil {
		return nil, readError("lanes", err)
	}
	return lanes, nil
}

// Lane tells how one lane stands; NotFound where there is none.
func (o *Overview) Lane(ctx context.Context, number int) (Lane, error) {
	if number < 0 || number >= o.Store.Lanes {
		return Lane{}, &weir.Error{Kind: weir.NotFound, Op: "lane", Message: "there is no such lane"}
	}
	l, err := o.lane(ctx, number)
	if err != nil {
		return Lane{}, readError("lane", err)
	}
	return l, nil
}

func (o *Overview) lane(ctx context.Context, number int) (Lane, error) {
	c, err := o.Store.Control(ctx, number)
	if err != nil {
		return Lane{}, err
	}
	now := o.Now()
	l := Lane{
		Number: number, At: now, Accepted: c.Head.Next - 1, Counts: c.Tail.Counts, Waiting: c.Waiting(), Exact: true,
		Held: c.Tail.Open, Holder: c.Tail.Holder, Fence: c.Tail.Fence, NextDue: c.Tail.DueAt(),
		LastError: c.Tail.LastError, LastErrorAt: c.Tail.LastErrorAt, Pauses: c.Pauses(now), Halt: o.halt(c, now),
	}
	if l.Waiting > 0 {
		if err := o.stages(ctx, c, &l); err != nil {
			return Lane{}, err
		}
	}
	l.Rate1, l.Rate15 = o.rate(ctx, number, 1), o.rate(ctx, number, 15)
	l.Empty = l.empty(o.pace(ctx, number))
	return l, nil
}

// stages tells what waits by stage, and since when. What is read after the snapshot can have
// changed meanwhile: the counts are held to what the snapshot leaves room for.
func (o *Overview) stages(ctx context.Context, c lane.Control, l *Lane) error {
	standing, err := o.Store.Standing(ctx, l.Number, lanePages)
	if err != nil {
		return err
	}
	l.Exact = standing.Whole
	l.Scheduled = min(int64(len(standing.Dues)), l.Waiting)
	for _, h := range standing.Held {
		if h.Tried && l.Retrying < l.Waiting-l.Scheduled {
			l.Retrying++
		}
	}
	l.Queued = l.Waiting - l.Scheduled - l.Retrying
	return o.oldest(ctx, c, standing.Held, l)
}

// oldest finds since when the oldest waits: of the lines, the first of the log, the first of
// those replayed and the one that fell due first; and the log's next.
func (o *Overview) oldest(ctx context.Context, c lane.Control, line []lane.Held, l *Lane) error {
	first := map[bool]int64{} // by whether it was replayed
	for _, h := range line {
		if at := h.Released(); !at.IsZero() && !h.Again {
			l.older(at)
		} else if first[h.Again] == 0 || h.Seq < first[h.Again] {
			first[h.Again] = h.Seq
		}
	}
	for _, seq := range first {
		entries, _, err := o.Store.ReadMany(ctx, l.Number, []int64{seq})
		if err != nil {
			return err
		}
		for _, e := range entries {
			l.older(e.WaitsSince())
		}
	}
	if c.Tail.Cursor >= c.Head.Next {
		return nil
	}
	entries, err := o.Store.ScanLog(ctx, l.Number, c.Tail.Cursor, oldestRows)
	for _, e := range entries {
		if e.Stage == weir.Queued && !e.Held {
			l.older(e.Message.AcceptedAt)
			break
		}
	}
	return err
}

func (l *Lane) older(at time.Time) {
	if l.OldestAt.IsZero() || at.Before(l.OldestAt) {
		l.OldestAt = at
	}
}

// empty is known where there is nothing to go, or a pace at which it goes.
func (l *Lane) empty(pace Rate) Empty {
	left := float64(l.Waiting - l.Scheduled)
	switch {
	case left == 0:
		return Empty{Known: true}
	case !pace.Known || l.Halt.By != "":
		return Empty{}
	}
	return Empty{In: minutes(left / pace.PerMinute), Known: true}
}

// farOff is more than anybody wants to know.
const farOff = 10 * 365 * 24 * time.Hour

func minutes(n float64) time.Duration {
	if n > farOff.Minutes() {
		return farOff
	}
	return time.Duration(n * float64(time.Minute))
}

// Totals are the sums over lanes.
type Totals struct {
	Accepted, Waiting int64
	Counts            lane.Counts
}

// Sum adds lanes up.
func Sum(lanes []Lane) Totals {
	var t Totals
	for _, l := range lanes {
		t.Accepted += l.Accepted
		t.Waiting += l.Waiting
		t.Counts.Delivered += l.Counts.Delivered
		t.Counts.Dead += l.Counts.Dead
		t.Counts.Cancelled += l.Counts.Cancelled
		t.Counts.Superseded += l.Counts.Superseded
		t.Counts.Moved += l.Counts.Moved
	}
	return t
}
