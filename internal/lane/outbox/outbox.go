package outbox

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Outbox is the outbox of one lane. Its methods may be called concurrently.
type Outbox struct {
	Table     storage.Table
	Partition string // partition of the lane
}

// controlRows are the control rows of a lane, from one query.
type controlRows interface {
	Marker(key string) (storage.Row, bool)
}

// MarkerOf returns the ETag of the outbox's marker; "" = there is no marker, so the outbox is
// empty.
func MarkerOf(c controlRows) storage.ETag {
	r, _ := c.Marker(rows.OutboxKey)
	return r.ETag
}

// LeaseName returns the name of the outbox's lease. Only the process with this lease sends the
// events.
func (o Outbox) LeaseName() string { return "mail-" + o.Partition }

// Page has consecutive events of an outbox.
type Page struct {
	Due []Event
	// key of the last row with a due event, or of a damaged row; empty = there is none
	End string
	// due time of the first event that is not due yet; zero = the page has no such event
	NextAt   time.Time
	More     bool // further events can be due
	RowsSeen int  // number of rows read, due or not

	Damaged []storage.Row // rows that name no event; they stay in the outbox
}

// Read reads the first rows behind the key "after", at most limit; an empty key is the beginning of
// the outbox.
func (o Outbox) Read(ctx context.Context, now time.Time, after string, limit int) (Page, error) {
	found, err := o.Table.Range(ctx, storage.Query{Partition: o.Partition, From: rows.EventPrefix,
		After: after, To: rows.PrefixEnd(rows.EventPrefix), Limit: limit})
	if err != nil {
		return Page{}, err
	}

	p := Page{RowsSeen: len(found.Rows)}
	for _, r := range found.Rows {
		e, err := eventFrom(r)
		if err != nil {
			p.Damaged, p.End = append(p.Damaged, r), r.Key
			continue
		}

		if e.NextAt.After(now) {
			p.NextAt = e.NextAt
			return p, nil
		}

		p.Due = append(p.Due, e)
		p.End = r.Key
	}

	p.More = found.More || len(found.Rows) == limit

	return p, nil
}

// KeyBefore returns a key just before the row from which Read has read the event: between the two
// there are only rows of the same time.
func (e Event) KeyBefore() string { return e.rowKey[:len(e.rowKey)-1] }

// KeyAt returns a key before the rows of all events that are due at a time or later.
func KeyAt(at time.Time) string { return rows.EventPrefix + rows.TimePos(at) }

// Enqueue puts one or more events into the outbox. If a process repeats the call after an event was
// sent or postponed, Enqueue adds the event a second time.
func (o Outbox) Enqueue(ctx context.Context, events []Event) error {
	_, err := o.Table.Transact(ctx, o.Partition, enqueueOps(events))
	return err
}

// Postponement is a change of an event's NextAt. The field Was has the event from Read. The field
// Is has the changed event.
type Postponement struct{ Was, Is Event }

// Ack removes the events in "gone" from the outbox, and postpones the events in "later". The
// argument "marker" is the marker's ETag if, as far as the caller knows, no event stays in the
// outbox. Otherwise "marker" is empty. If "marker" is not empty, Ack also removes the marker.
//
// Ack skips an event whose row no longer exists. Another sender can have postponed such an event,
// so Ack then keeps the marker. The result "isEmpty" reports whether Ack removed the marker. The
// result "whole" reports whether all rows were still as the caller had read them. The caller can
// repeat the call after any error.
func (o Outbox) Ack(ctx context.Context, gone []Event, later []Postponement,
	marker storage.ETag) (isEmpty, whole bool, err error) {
	whole = true
	for len(gone) > 0 || len(later) > 0 {
		g := min(len(gone), storage.MaxOps-1) // one operation is for the marker
		l := min(len(later), (storage.MaxOps-1-g)/2)
		last := g == len(gone) && l == len(later)
		ops := ackOps(gone[:g], later[:l])
		if last && whole && marker != "" {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.OutboxKey,
				IfMatch: marker})
		}

		asSeen, err := o.transactAcks(ctx, gone[:g], later[:l], ops)
		if err != nil {
			return false, false, err
		}

		whole = whole && asSeen
		isEmpty = whole && last && marker != ""
		gone, later = gone[g:], later[l:]
	}

	return isEmpty, whole, nil
}

func ackOps(gone []Event, later []Postponement) []storage.Op {
	var ops []storage.Op
	for _, e := range gone {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: e.rowKey})
	}

	for _, p := range later {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: p.Was.rowKey}, p.Is.upsertOp())
	}

	return ops
}

// transactAcks executes ops in one transaction, and returns true. Storage refuses the transaction
// if a row no longer exists, or if the marker has another ETag. In this case transactAcks executes
// one transaction for each event, keeps the marker, and returns false.
func (o Outbox) transactAcks(ctx context.Context, gone []Event, later []Postponement,
	ops []storage.Op) (whole bool, err error) {
	_, err = o.Table.Transact(ctx, o.Partition, ops)
	if !storage.Is(err, storage.NotFound) && !storage.Is(err, storage.Precondition) {
		return err == nil, err
	}

	alone := func(ops []storage.Op) error {
		_, err := o.Table.Transact(ctx, o.Partition, ops)
		if storage.Is(err, storage.NotFound) {
			return nil // another sender, or an earlier try of this process, has removed the row
		}
		return err
	}

	for _, e := range gone {
		if err := alone(ackOps([]Event{e}, nil)); err != nil {
			return false, err
		}
	}

	for _, p := range later {
		if err := alone(ackOps(nil, []Postponement{p})); err != nil {
			return false, err
		}
	}

	return false, nil
}

// ClearMarker removes the marker of an empty outbox. The argument "marker" is the marker's ETag
// from before the read that found the outbox empty. ClearMarker returns false if the marker has
// another ETag or no longer exists.
func (o Outbox) ClearMarker(ctx context.Context, marker storage.ETag) (bool, error) {
	_, err := o.Table.Transact(ctx, o.Partition,
		[]storage.Op{{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: marker}})
	if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
		return false, nil
	}
	return err == nil, err
}
