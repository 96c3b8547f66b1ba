package drain

import (
	"context"
	"time"

	"weir/internal/lane"
)

const (
	// pageRows is how many messages are read ahead at once: with bodies of up to 60 KiB
	// in the rows, a page is under 2 MiB.
	pageRows = 32
	// lowWater is the number of messages left at which the next page is read.
	lowWater = 8
)

// window is the part of the log that was read and is not settled, in order.
type window struct {
	store    *lane.Store
	lane     int
	entries  []*lane.Entry
	nextRead int64 // first sequence number not read
	end      bool  // the last read found the end of the log
}

// cursor is the sequence number below which everything is settled.
func (w *window) cursor() int64 {
	if len(w.entries) > 0 {
		return w.entries[0].Seq()
	}
	return w.nextRead
}

// refill reads another page when little is left. What an earlier holder settled above its
// cursor is passed over: final ones, and those that stand among the held.
func (w *window) refill(ctx context.Context, rows int) error {
	for !w.end && len(w.entries) < min(lowWater, rows) {
		page, err := w.store.ReadLog(ctx, w.lane, w.nextRead, rows)
		if err != nil {
			return err
		}
		for _, e := range page {
			w.nextRead = e.Seq() + 1
			if !e.Stage.Final() && !e.Held {
				w.entries = append(w.entries, e)
			}
		}
		w.end = len(page) < rows
	}
	return nil
}

// more tells the window that the log goes on.
func (w *window) more() { w.end = false }

// remove takes out a settled entry.
func (w *window) remove(e *lane.Entry) {
	for i, other := range w.entries {
		if other == e {
			w.entries = append(w.entries[:i], w.entries[i+1:]...)
			return
		}
	}
}

// blocks are the keys that wait, by block id.
type blocks map[string]*lane.Block

// nextDue is the earliest moment at which one of them is tried again; zero = none waits.
func (b blocks) nextDue() time.Time {
	var next time.Time
	for _, blk := range b {
		if next.IsZero() || blk.Next.Before(next) {
			next = blk.Next
		}
	}
	return next
}

// due gives the block that has waited longest past its time among those usable.
func (b blocks) due(now time.Time, usable func(*lane.Block) bool) *lane.Block {
	var first *lane.Block
	for _, blk := range b {
		if blk.Next.After(now) || !usable(blk) {
			continue
		}
		if first == nil || blk.Next.Before(first.Next) || (blk.Next.Equal(first.Next) && blk.ID < first.ID) {
			first = blk
		}
	}
	return first
}
