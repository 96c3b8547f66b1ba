// Package bulk cancels the waiting messages, and discards the dead messages, that a selection
// selects, in steps of bounded size. Each step returns the position that it has reached in the
// lanes. The caller stores the position, so that any instance can make the next step. A bulk replay
// lasts longer and has a rate, so it is a job: package replay.
package bulk

import (
	"context"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Selection selects the messages of a step.
type Selection = lists.Selection

// Position is the place up to which the steps have read the messages. The zero value is the
// beginning.
type Position struct {
	Lane int `json:"l"` // index among the lanes that the selection selects
	lists.WaitingPlace
	// sequence number of the last dead message that was read in this lane; 0 = none
	Seq   int64 `json:"s,omitempty"`
	Epoch int   `json:"e"` // epoch whose lanes the steps have read; 0 at the beginning
}

// IsValid reports whether a step can have returned the position.
func (p Position) IsValid() bool {
	return p.Lane >= 0 && p.Epoch >= 0 && p.Seq >= 0 && p.WaitingPlace.IsValid()
}

// Counts has the number of messages that a step has selected, and the results of its requests.
type Counts struct {
	lane.BulkCounts
	Selected int64 // messages that the selection selects
	Lanes    []int // lanes with selected messages, in rising order; nil if the call only counts
}

// Changer changes messages in the lanes of a store. It is safe for concurrent use.
type Changer struct{ Store *lane.Store }

// deadPage is the largest number of rows of a page of dead messages.
const deadPage = 500

// CancelWaiting makes one step: from a position on, it cancels the selected waiting messages, or
// asks the lane's holder to cancel them; see walk.
func (c Changer) CancelWaiting(ctx context.Context, s Selection, from Position, limit int,
	dryRun bool) (Counts, Position, bool, error) {
	w := walk{store: c.Store, name: "cancel", limit: limit, dryRun: dryRun,
		readPage: func(ctx context.Context, number int, at Position) (page, error) {
			return c.readWaiting(ctx, number, at, s)
		},
		change: c.Store.Requests().CancelMany}
	return w.makeStep(ctx, s, from)
}

// DiscardDead makes one step: from a position on, it asks the holder of each lane to discard the
// selected dead messages; see walk.
func (c Changer) DiscardDead(ctx context.Context, s Selection, from Position, limit int,
	reason string, dryRun bool) (Counts, Position, bool, error) {
	w := walk{store: c.Store, name: "discard", limit: limit, dryRun: dryRun,
		readPage: func(ctx context.Context, number int, at Position) (page, error) {
			return c.readDead(ctx, number, at, s)
		},
		change: func(ctx context.Context, number int, entries []*lane.Entry) (lane.BulkCounts,
			error) {
			return c.Store.Requests().DiscardMany(ctx, number, entries, reason)
		}}

	return w.makeStep(ctx, s, from)
}

// page is one page of the messages of a lane.
type page struct {
	read     int // number of messages
	selected int
	load     func(context.Context) ([]*lane.Entry, error) // returns the selected messages
	next     Position                                     // position of the next page
}

func (c Changer) readWaiting(ctx context.Context, number int, at Position,
	s Selection) (page, error) {
	entries, next, isLast, err := lists.Reader{Store: c.Store}.ReadWaitingPage(ctx, number,
		at.WaitingPlace)
	p := page{read: len(entries), next: Position{Lane: at.Lane, WaitingPlace: next}}
	if isLast {
		p.next = Position{Lane: at.Lane + 1}
	}

	entries = slices.DeleteFunc(entries, func(e *lane.Entry) bool { return !s.HasWaiting(e) })
	p.selected = len(entries)
	p.load = func(context.Context) ([]*lane.Entry, error) { return entries, nil }

	return p, err
}

func (c Changer) readDead(ctx context.Context, number int, at Position, s Selection) (page, error) {
	found, more, err := lists.Reader{Store: c.Store}.ReadDead(ctx, number, at.Seq, deadPage)
	p := page{read: len(found), next: Position{Lane: at.Lane, Seq: at.Seq}}
	if len(found) > 0 {
		p.next.Seq = found[len(found)-1].Seq
	}

	if !more && len(found) < deadPage {
		p.next = Position{Lane: at.Lane + 1}
	}

	var seqs []int64
	for _, row := range slices.Backward(found) {
		if s.HasDead(row) {
			seqs = append(seqs, row.Seq)
		}
	}

	p.selected = len(seqs)
	p.load = func(ctx context.Context) ([]*lane.Entry, error) {
		entries, _, err := c.Store.ReadMany(ctx, number, seqs)
		return entries, err
	}

	return p, err
}

// walk is one step over the lanes. The step ends when it has read at least limit messages, when no
// lane is left (then it is done), or when ctx ends. The next step begins at the returned position.
// If the number of lanes has changed since, the next step returns an error; see
// lane.Store.CheckPosition. After an error the returned position is the beginning of the failed
// page. With dryRun the step only counts the messages. It does no harm to make a step again from
// the same position.
type walk struct {
	store    *lane.Store
	name     string // of the operation, for errors
	limit    int
	dryRun   bool
	readPage func(ctx context.Context, number int, at Position) (page, error)
	change   func(ctx context.Context, number int, entries []*lane.Entry) (lane.BulkCounts, error)
}

func (w *walk) makeStep(ctx context.Context, s Selection, from Position) (counts Counts,
	at Position, done bool, err error) {
	if from != (Position{}) {
		if err := w.store.CheckPosition(w.name, from.Epoch); err != nil {
			return Counts{}, from, false, err
		}
	}

	lanes := s.LanesOf(w.store)
	at = from
	for read := 0; at.Lane < len(lanes); {
		if read >= w.limit || ctx.Err() != nil {
			return counts, at, false, nil
		}

		p, err := w.readPage(ctx, lanes[at.Lane], at)
		if err == nil {
			read += p.read
			err = w.changePage(ctx, lanes[at.Lane], p, &counts)
		}

		if err != nil {
			return counts, at, false, lane.APIError(w.name, err)
		}

		at = p.next
		at.Epoch = w.store.Epoch
	}

	return counts, at, true, nil
}

// changePage changes the selected messages of a page, and counts them.
func (w *walk) changePage(ctx context.Context, number int, p page, counts *Counts) error {
	counts.Selected += int64(p.selected)
	if w.dryRun || p.selected == 0 {
		return nil
	}

	if !slices.Contains(counts.Lanes, number) {
		counts.Lanes = append(counts.Lanes, number)
	}

	entries, err := p.load(ctx)
	if err != nil {
		return err
	}

	part, err := w.change(ctx, number, entries)
	counts.Cancelled += part.Cancelled
	counts.Asked += part.Asked
	counts.TooLate += part.TooLate

	return err
}

// WaitingStages are the stages of the messages that CancelWaiting can select.
var WaitingStages = []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying}
