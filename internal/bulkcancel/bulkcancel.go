// Package bulkcancel cancels the waiting messages that a filter selects, in steps of bounded size. Each step returns
// the position that it has reached in the lanes. The caller stores the position, so that any instance can make the next
// step.
package bulkcancel

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Filter selects the waiting messages that match all of its fields. An empty field matches every message.
type Filter struct {
	Key       string
	KeyPrefix string
	Contract  string
	Stage     weir.Stage // scheduled, queued or retrying
	Lane      *int
	From, To  time.Time // accepted at or after From, and before To
}

// selectLanes returns those of the lanes that can have selected messages.
func (f *Filter) selectLanes(store *lane.Store) []int {
	var lanes []int
	for i := range store.Lanes {
		if (f.Lane == nil || *f.Lane == i) && (f.Key == "" || store.LaneOf(f.Key) == i) {
			lanes = append(lanes, i)
		}
	}
	return lanes
}

func (f *Filter) isSelected(e *lane.Entry) bool {
	m := &e.Message
	switch {
	case e.Stage.Final(),
		f.Key != "" && m.Key != f.Key,
		!strings.HasPrefix(m.Key, f.KeyPrefix),
		f.Contract != "" && m.Contract != f.Contract,
		f.Stage != "" && e.Stage != f.Stage,
		m.AcceptedAt.Before(f.From),
		!f.To.IsZero() && !m.AcceptedAt.Before(f.To):
		return false
	}
	return true
}

// Position is the place up to which the steps have read the waiting messages. The zero value is the beginning.
type Position struct {
	Lane int `json:"l"` // index among the lanes that the filter selects
	lists.WaitingPlace
	Epoch int `json:"e"` // epoch whose lanes the steps have read; 0 at the beginning
}

// IsValid reports whether a step can have returned the position.
func (p Position) IsValid() bool { return p.Lane >= 0 && p.Epoch >= 0 && p.WaitingPlace.IsValid() }

// Counts has the numbers of messages that a step has selected and cancelled.
type Counts struct {
	lane.CancelCounts
	Selected int64 // waiting messages that the filter selects
	Lanes    []int // lanes with selected messages, in rising order; nil if the call only counts
}

// Canceller cancels messages in the lanes of a store. It is safe for concurrent use.
type Canceller struct{ Store *lane.Store }

// CancelWaiting makes one step: from a position on, it cancels the messages that a filter selects, or asks the lane's
// holder to cancel them. The step ends when it has read at least limit messages, when no lane is left (then done is
// true), or when ctx ends. The next step begins at the returned position. If the number of lanes has changed since, the
// next step returns an error; see lane.Store.CheckPosition. After an error the returned position is the
// beginning of the failed page. If dryRun is set, CancelWaiting only counts the messages. It does no harm to make a
// step again from the same position.
func (c Canceller) CancelWaiting(ctx context.Context, f Filter, from Position, limit int,
	dryRun bool) (counts Counts, at Position, done bool, err error) {
	if from != (Position{}) {
		if err := c.Store.CheckPosition("cancel", from.Epoch); err != nil {
			return Counts{}, from, false, err
		}
	}
	lanes := f.selectLanes(c.Store)
	at = from
	for looked := 0; at.Lane < len(lanes); {
		if looked >= limit || ctx.Err() != nil {
			return counts, at, false, nil
		}
		number := lanes[at.Lane]
		entries, next, err := c.readPage(ctx, number, at)
		if err == nil {
			looked += len(entries)
			entries = slices.DeleteFunc(entries, func(e *lane.Entry) bool { return !f.isSelected(e) })
			counts.Selected += int64(len(entries))
			if !dryRun && len(entries) > 0 {
				err = c.cancelEach(ctx, number, entries, &counts)
			}
		}
		if err != nil {
			return counts, at, false, lane.APIError("cancel", err)
		}
		at = next
		at.Epoch = c.Store.Epoch
	}
	return counts, at, true, nil
}

func (c Canceller) cancelEach(ctx context.Context, number int, entries []*lane.Entry, counts *Counts) error {
	if !slices.Contains(counts.Lanes, number) {
		counts.Lanes = append(counts.Lanes, number)
	}
	part, err := c.Store.Requests().CancelMany(ctx, number, entries)
	counts.Cancelled += part.Cancelled
	counts.Asked += part.Asked
	counts.TooLate += part.TooLate
	return err
}

// readPage reads one page of messages at a position, and returns the position of the next page.
func (c Canceller) readPage(ctx context.Context, number int, at Position) ([]*lane.Entry, Position, error) {
	entries, next, isLast, err := lists.Reader{Store: c.Store}.ReadWaitingPage(ctx, number, at.WaitingPlace)
	if isLast {
		return entries, Position{Lane: at.Lane + 1}, err
	}
	at.WaitingPlace = next
	return entries, at, err
}
