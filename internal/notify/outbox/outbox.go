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

// controlRows are the control rows of a lane as one read returned them.
type controlRows interface {
	Marker(key string) (storage.Row, bool)
}

// MarkerOf returns the version of the marker row, which exists while the outbox may have events; "" = the outbox is
// empty.
func MarkerOf(c controlRows) storage.ETag {
	r, _ := c.Marker(rows.OutboxKey)
	return r.ETag
}

// LeaseName returns the name of the outbox's lease. Only the process that has this lease sends the events.
func (o Outbox) LeaseName() string { return "mail-" + o.Partition }

// Page has the first rows of an outbox.
type Page struct {
	Due      []Event
	NextAt   time.Time // due time of the first event that is not due yet; zero = the page has no such event
	More     bool      // there may be more due events
	RowsSeen int       // number of rows read, due or not
}

// Read reads up to limit rows, from the first one on.
func (o Outbox) Read(ctx context.Context, now time.Time, limit int) (Page, error) {
	found, err := o.Table.Range(ctx, storage.Query{Partition: o.Partition, From: rows.EventPrefix,
		To: rows.PrefixEnd(rows.EventPrefix), Limit: limit})
	if err != nil {
		return Page{}, err
	}
	p := Page{RowsSeen: len(found.Rows)}
	for _, r := range found.Rows {
		e, err := eventFrom(r)
		if err != nil {
			return Page{}, err
		}
		if e.NextAt.After(now) {
			p.NextAt = e.NextAt
			return p, nil
		}
		p.Due = append(p.Due, e)
	}
	p.More = found.More || len(found.Rows) == limit
	return p, nil
}

// Enqueue puts into the outbox events that are about neither a message nor the state of the lane. It adds no second row
// for an event that is already in the outbox, unless the event was postponed.
func (o Outbox) Enqueue(ctx context.Context, events []Event) error {
	_, err := o.Table.Transact(ctx, o.Partition, enqueueOps(events))
	return err
}

// Postponement has an event as it was before it was postponed, and as it is afterwards.
type Postponement struct{ Was, Is Event }

// Ack removes events from the outbox and postpones others. If these are the last events, the caller gives the version
// of the marker in "marker", and Ack also removes the marker. If "marker" is empty, Ack keeps the marker. Ack skips an
// event whose row is gone. In that case it keeps the marker, because another sender may have postponed the event. Ack
// can be repeated after any error. It reports whether it removed the marker, and whether it found all rows as the
// caller had read them.
func (o Outbox) Ack(ctx context.Context, gone []Event, later []Postponement,
	marker storage.ETag) (isEmpty, whole bool, err error) {
	whole = true
	for len(gone) > 0 || len(later) > 0 {
		g := min(len(gone), storage.MaxOps-1) // one operation is for the marker
		l := min(len(later), (storage.MaxOps-1-g)/2)
		last := g == len(gone) && l == len(later)
		ops := ackOps(gone[:g], later[:l])
		if last && whole && marker != "" {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: marker})
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

// transactAcks sends one transaction, and returns true. If storage refuses the transaction because of one of its rows,
// or because of the marker, transactAcks sends one transaction for each event. It then keeps the marker, and returns
// false.
func (o Outbox) transactAcks(ctx context.Context, gone []Event, later []Postponement,
	ops []storage.Op) (whole bool, err error) {
	_, err = o.Table.Transact(ctx, o.Partition, ops)
	if !storage.Is(err, storage.NotFound) && !storage.Is(err, storage.Precondition) {
		return err == nil, err
	}
	alone := func(ops []storage.Op) error {
		_, err := o.Table.Transact(ctx, o.Partition, ops)
		if storage.Is(err, storage.NotFound) {
			return nil // an earlier request of this process, or another sender, has removed the row
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

// ClearMarker removes the marker of an empty outbox, if the marker has this version. It returns false if
// another process has written the marker again, or an earlier try has removed it.
func (o Outbox) ClearMarker(ctx context.Context, marker storage.ETag) (bool, error) {
	_, err := o.Table.Transact(ctx, o.Partition,
		[]storage.Op{{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: marker}})
	if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
		return false, nil
	}
	return err == nil, err
}
