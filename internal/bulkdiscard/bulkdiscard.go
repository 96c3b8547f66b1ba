// Package bulkdiscard discards the dead messages that a filter selects, in steps of bounded size. Each step returns the
// position that it has reached in the lanes. The caller stores the position, so that any instance can make the next
// step.
package bulkdiscard

import (
	"context"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// Filter selects the dead messages that match all of its fields. An empty field matches every message.
type Filter struct {
	Key         string
	Contract    string
	Fingerprint string // fingerprint of the error; see weir.Fingerprint
	Lane        *int
	From, To    time.Time // the message died at or after From, and before To
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

func (f *Filter) isSelected(d lists.DeadRow) bool {
	switch {
	case f.Key != "" && d.Key != f.Key,
		f.Contract != "" && d.Contract != f.Contract,
		d.DiedAt.Before(f.From),
		!f.To.IsZero() && !d.DiedAt.Before(f.To):
		return false
	case f.Fingerprint == "":
		return true
	}
	fingerprint, _ := weir.Fingerprint(d.Contract, d.CMSStatus, d.Reason)
	return fingerprint == f.Fingerprint
}

// Position is the place up to which the steps have read the dead messages. The zero value is the beginning.
type Position struct {
	Lane int   `json:"l"` // index among the lanes that the filter selects
	Seq  int64 `json:"s"` // sequence number of the last message that was read in this lane; 0 = none

	Epoch int `json:"e"` // epoch whose lanes the steps have read; 0 at the beginning
}

// IsValid reports whether a step can have returned the position.
func (p Position) IsValid() bool { return p.Lane >= 0 && p.Seq >= 0 && p.Epoch >= 0 }

// Counts has the number of messages that a step has selected, and the results of its requests to discard them.
type Counts struct {
	lane.DiscardCounts
	Selected int64 // messages that the filter selects
	Lanes    []int // lanes with selected messages, in rising order; nil if the call only counts
}

// deadPage is the largest number of rows of a page.
const deadPage = 500

// Discarder asks the holders of a store's lanes to discard dead messages. It is safe for concurrent use.
type Discarder struct{ Store *lane.Store }

// DiscardDead makes one step: it goes over the lanes from a position on, and asks the holder of each lane to discard
// the dead messages that a filter selects. The step ends when it has read at least limit messages, when no lane is left
// (then done is true), or when ctx ends. The next step begins at the returned position. After an error the returned
// position is the beginning of the failed page. If dryRun is set, DiscardDead only counts the messages. It is safe to
// repeat a step. If the number of lanes has changed since a step, the next step returns an error; see
// lane.Store.CheckPosition.
func (d Discarder) DiscardDead(ctx context.Context, f Filter, from Position, limit int, reason string,
	dryRun bool) (counts Counts, at Position, done bool, err error) {
	if from != (Position{}) {
		if err := d.Store.CheckPosition("discard", from.Epoch); err != nil {
			return Counts{}, from, false, err
		}
	}
	lanes := f.selectLanes(d.Store)
	at = from
	for looked := 0; at.Lane < len(lanes); {
		if looked >= limit || ctx.Err() != nil {
			return counts, at, false, nil
		}
		number := lanes[at.Lane]
		found, more, err := lists.Reader{Store: d.Store}.ReadDead(ctx, number, at.Seq, deadPage)
		if err == nil {
			looked += len(found)
			var seqs []int64
			for _, row := range slices.Backward(found) {
				if f.isSelected(row) {
					seqs = append(seqs, row.Seq)
				}
			}
			counts.Selected += int64(len(seqs))
			if !dryRun && len(seqs) > 0 {
				err = d.discardEach(ctx, number, seqs, reason, &counts)
			}
		}
		if err != nil {
			return counts, at, false, lane.APIError("discard", err)
		}
		if len(found) > 0 {
			at.Seq = found[len(found)-1].Seq
		}
		if !more && len(found) < deadPage {
			at = Position{Lane: at.Lane + 1}
		}
		at.Epoch = d.Store.Epoch
	}
	return counts, at, true, nil
}

func (d Discarder) discardEach(ctx context.Context, number int, seqs []int64, reason string, counts *Counts) error {
	if !slices.Contains(counts.Lanes, number) {
		counts.Lanes = append(counts.Lanes, number)
	}
	entries, _, err := d.Store.ReadMany(ctx, number, seqs)
	if err != nil {
		return err
	}
	part, err := d.Store.Requests().DiscardMany(ctx, number, entries, reason)
	counts.Asked += part.Asked
	counts.TooLate += part.TooLate
	return err
}
