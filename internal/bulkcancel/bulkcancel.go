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
	"weir/internal/lane/rows"
	"weir/internal/storage"
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
	Lane  int         `json:"l"` // index among the lanes that the filter selects
	Part  waitingPart `json:"p"`
	After string      `json:"a"` // key of the last row that was read in this part; "" = none
	Epoch int         `json:"e"` // epoch whose lanes the steps have read; 0 at the beginning
}

// IsValid reports whether a step can have returned the position.
func (p Position) IsValid() bool {
	prefix := map[waitingPart]string{partScheduled: rows.DuePrefix, partLog: rows.MessagePrefix,
		partHeld: rows.HeldPrefix}[p.Part]
	return p.Lane >= 0 && p.Epoch >= 0 && prefix != "" && (p.After == "" || strings.HasPrefix(p.After, prefix))
}

// waitingPart is one of the three parts of a lane's rows that have waiting messages. A message moves only to partHeld:
// from partScheduled when the message is due, or from partLog when the message's key is blocked. The steps read
// partHeld last, so they miss no message that moves.
type waitingPart int

const (
	partScheduled waitingPart = iota
	partLog
	partHeld
	partEnd // number of parts
)

// Counts has the numbers of messages that a step has selected and cancelled.
type Counts struct {
	lane.CancelCounts
	Selected int64 // waiting messages that the filter selects
	Lanes    []int // lanes with selected messages, in rising order; nil if the call only counts
}

// waitingPage is the largest number of rows of a page.
const waitingPage = 500

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
	if at.Part == partLog {
		return c.readLogPage(ctx, number, at)
	}
	prefix := rows.DuePrefix
	if at.Part == partHeld {
		prefix = rows.HeldPrefix
	}
	page, err := c.Store.Table.Range(ctx, waitingQuery(c.Store.Partition(number), prefix, at.After,
		rows.Names(rows.Seq)))
	if err != nil {
		return nil, at, err
	}
	var seqs []int64
	for _, r := range page.Rows {
		seq := lane.HeldFrom(r).Seq
		if at.Part == partScheduled {
			d, err := lane.ParseDueKey(r.Key)
			if err != nil {
				return nil, at, err
			}
			seq = d.Seq
		}
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	slices.Reverse(seqs)
	entries, _, err := c.Store.ReadMany(ctx, number, seqs)
	return entries, at.positionAfter(page), err
}

// readLogPage reads one page of the log. The first page begins at the lane's cursor.
func (c Canceller) readLogPage(ctx context.Context, number int, at Position) ([]*lane.Entry, Position, error) {
	behind := at.After
	if behind == "" {
		control, err := c.Store.ReadControl(ctx, number)
		if err != nil {
			return nil, at, err
		}
		behind = rows.MessageKey(max(control.Tail.Cursor-1, 0))
	}
	page, err := c.Store.Table.Range(ctx,
		waitingQuery(c.Store.Partition(number), rows.MessagePrefix, behind, lane.ListColumns))
	if err != nil {
		return nil, at, err
	}
	entries, err := c.Store.EntriesFrom(ctx, number, page.Rows)
	// Scheduled and held messages are read in their own parts.
	entries = slices.DeleteFunc(entries, func(e *lane.Entry) bool { return e.IsHeld || e.Stage == weir.Scheduled })
	return entries, at.positionAfter(page), err
}

func waitingQuery(partition, prefix, behind string, columns []string) storage.Query {
	q := storage.Query{Partition: partition, From: prefix, To: rows.PrefixEnd(prefix), Limit: waitingPage,
		Columns: columns}
	if behind != "" {
		q.From, q.After = "", behind
	}
	return q
}

// positionAfter returns the position of the page that follows this page.
func (p Position) positionAfter(page storage.Page) Position {
	if page.More || len(page.Rows) == waitingPage {
		p.After = page.Rows[len(page.Rows)-1].Key
		return p
	}
	if p.Part, p.After = p.Part+1, ""; p.Part == partEnd {
		p = Position{Lane: p.Lane + 1}
	}
	return p
}
