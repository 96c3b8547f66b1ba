package lane

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// The outbox of a lane has the events for receivers outside. The event that a message has become final is
// written in the transaction that makes it final, so a crash cannot separate the two. A row is one event for
// one receiver. Its key begins with the time at which to send it, so due events come first, and a postponed
// event moves to a new row.
//
// The row !mail marks an outbox as possibly not empty. Each reader of the control rows reads it anyway, so it
// costs no request to know that an outbox is empty. A sender that finds the outbox empty removes the marker
// under the ETag that it had before that read: an event that was added meanwhile has written the marker again.

// Notifier is the sender of the events in the outboxes.
type Notifier interface {
	// DeadReceivers returns the receivers of events about dead messages of a contract.
	DeadReceivers(contract string) []string
	// WakeOutbox starts the sending of new events in a lane's outbox. It returns at once.
	WakeOutbox(lane int)
}

// CallbackTo is the Receiver of the event for a message's callback. All other receivers have configured names.
const CallbackTo = "callback"

// Event is an event for one receiver.
type Event struct {
	Key          string // identifies the event in its lane
	Type         string // such as message.dead
	At           time.Time
	Seq          int64      // of the message that the event is about; 0 = none
	Stage        weir.Stage // of the message, at the time of the event
	Receiver     string     // name of the receiver, or CallbackTo
	URL          string     // of the receiver, if that is CallbackTo
	ID           string     // of the event, for receivers; empty until it was sent
	Body         []byte     // as sent; nil until it was sent
	NextAt       time.Time  // when to send it, in whole microseconds
	Attempts     int
	FirstTriedAt time.Time // of the first try; zero = none
	rowKey       string    // as read
}

func eventKey(m Event) string {
	return fmt.Sprintf("%s%0*d_%s_%s", rows.EventPrefix, dueDigits, m.NextAt.UnixMicro(), m.Key, m.Receiver)
}

func (m Event) eventValues() map[string]any {
	v := rows.Sparse(rows.EventType.Is(m.Type), rows.EventAt.Is(m.At), rows.Seq.Is(m.Seq),
		rows.Stage.Is(string(m.Stage)), rows.URL.Is(m.URL), rows.EventID.Is(m.ID),
		rows.EventAttempts.Is(int64(m.Attempts)), rows.FirstTriedAt.Is(m.FirstTriedAt))
	if m.Body != nil {
		rows.Put(v, rows.Body.Is(m.Body))
	}
	return v
}

func eventFrom(r storage.Row) (Event, error) {
	parts := strings.SplitN(strings.TrimPrefix(r.Key, rows.EventPrefix), "_", 3)
	if len(parts) != 3 {
		return Event{}, fmt.Errorf("lane: row %q is no mail", r.Key)
	}
	micros, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return Event{}, fmt.Errorf("lane: row %q: %w", r.Key, err)
	}
	v := r.Values
	return Event{Key: parts[1], Receiver: parts[2], NextAt: time.UnixMicro(micros).UTC(), Type: rows.EventType.Of(v),
		At: rows.EventAt.Of(v), Seq: rows.Seq.Of(v),
		Stage: weir.Stage(rows.Stage.Of(v)), URL: rows.URL.Of(v), ID: rows.EventID.Of(v), Body: rows.Body.Of(v),
		Attempts: int(rows.EventAttempts.Of(v)), FirstTriedAt: rows.FirstTriedAt.Of(v), rowKey: r.Key}, nil
}

// finalEvent returns the event that a message has become final.
func finalEvent(seq int64, stage weir.Stage, at time.Time, to, url string) Event {
	at = at.UTC().Truncate(time.Microsecond)
	return Event{Key: hashParts("final", rows.SeqPos(seq), string(stage), at.Format(time.RFC3339Nano)),
		Type: "message." + string(stage),
		At:   at, Seq: seq, Stage: stage, Receiver: to, URL: url, NextAt: at}
}

// eventOps returns the operations that put events into the outbox.
func eventOps(mail ...Event) []storage.Op {
	ops := make([]storage.Op, 0, len(mail)+1)
	for _, m := range mail {
		ops = append(ops, storage.Op{Kind: storage.Upsert, Key: eventKey(m), Values: m.eventValues()})
	}
	return append(ops, storage.Op{Kind: storage.Upsert, Key: rows.OutboxKey,
		Values: rows.Values(rows.EventAt.Is(mail[0].NextAt))})
}

// addCallback adds the event for the callback of a message that has become final, if the message has one.
func (c *Change) addCallback(seq int64, url string, stage weir.Stage, at time.Time) {
	if url != "" {
		c.addEvents(finalEvent(seq, stage, at, CallbackTo, url))
	}
}

// NotifyFinal adds an event for each receiver about a message that has become final.
func (c *Change) NotifyFinal(e *Entry, stage weir.Stage, at time.Time, receivers []string) {
	for _, to := range receivers {
		c.addEvents(finalEvent(e.Seq(), stage, at, to, ""))
	}
}

func (c *Change) addEvents(m Event) {
	if c.hasEvents {
		c.ops = append(c.ops, eventOps(m)[0]) // the change has the marker already
		return
	}
	c.hasEvents = true
	c.ops = append(c.ops, eventOps(m)...)
}

// HasEvents reports whether the change puts an event into the outbox.
func (c *Change) HasEvents() bool { return c.hasEvents }

// OutboxMarker returns the version of the row that marks the outbox as perhaps not empty; "" = it is empty.
func (c Control) OutboxMarker() storage.ETag {
	r, _ := c.markerRow(rows.OutboxKey)
	return r.ETag
}

func (c Control) markerRow(key string) (storage.Row, bool) {
	for _, r := range c.markers {
		if r.Key == key {
			return r, true
		}
	}
	return storage.Row{}, false
}

// OutboxLeaseName returns the name of the lease whose holder sends the events of a lane's outbox.
func (s *Store) OutboxLeaseName(lane int) string { return "mail-" + s.partitionOf(lane) }

// Outbox has the first rows of an outbox.
type Outbox struct {
	Due      []Event
	NextAt   time.Time // due time of the first event that is not due; zero = none was read
	More     bool      // there are more due events
	RowsSeen int       // due or not
}

// ReadOutbox reads the first rows of a lane's outbox, at most limit.
func (s *Store) ReadOutbox(ctx context.Context, lane int, now time.Time, limit int) (Outbox, error) {
	page, err := s.Table.Range(ctx, storage.Query{Partition: s.partitionOf(lane), From: rows.EventPrefix,
		To: rows.PrefixEnd(rows.EventPrefix), Limit: limit})
	if err != nil {
		return Outbox{}, err
	}
	o := Outbox{RowsSeen: len(page.Rows)}
	for _, r := range page.Rows {
		m, err := eventFrom(r)
		if err != nil {
			return Outbox{}, err
		}
		if m.NextAt.After(now) {
			o.NextAt = m.NextAt
			return o, nil
		}
		o.Due = append(o.Due, m)
	}
	o.More = page.More || len(page.Rows) == limit
	return o, nil
}

// ReadEventMessage reads the present state of the message that an event is about.
func (s *Store) ReadEventMessage(ctx context.Context, lane int, m Event) (weir.Status, error) {
	e, err := s.ReadMessage(ctx, lane, m.Seq)
	if err == nil {
		err = s.fillFromPacked(ctx, e)
	}
	if err != nil {
		return weir.Status{}, err
	}
	return e.status, nil
}

// Postponement has an event before and after it was postponed.
type Postponement struct{ Was, Is Event }

// AckEvents removes events from the outbox and postpones others. If that leaves the outbox empty, note is the
// version of the marker to remove; "" = keep the marker. An event that is gone already is passed over, and then
// the marker stays, because another sender may have postponed the event. AckEvents can be repeated after any
// error. It returns whether the marker was removed, and whether all rows were as the caller had read them.
func (s *Store) AckEvents(ctx context.Context, lane int, gone []Event, later []Postponement,
	note storage.ETag) (quiet, whole bool, err error) {
	whole = true
	for len(gone) > 0 || len(later) > 0 {
		g := min(len(gone), storage.MaxOps-1) // one operation is for the marker
		l := min(len(later), (storage.MaxOps-1-g)/2)
		last := g == len(gone) && l == len(later)
		ops := ackOps(gone[:g], later[:l])
		if last && whole && note != "" {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: note})
		}
		asSeen, err := s.transactAcks(ctx, lane, gone[:g], later[:l], ops)
		if err != nil {
			return false, false, err
		}
		whole = whole && asSeen
		quiet = whole && last && note != ""
		gone, later = gone[g:], later[l:]
	}
	return quiet, whole, nil
}

func ackOps(gone []Event, later []Postponement) []storage.Op {
	var ops []storage.Op
	for _, m := range gone {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: m.rowKey})
	}
	for _, p := range later {
		ops = append(ops, storage.Op{Kind: storage.Delete, Key: p.Was.rowKey},
			storage.Op{Kind: storage.Upsert, Key: eventKey(p.Is), Values: p.Is.eventValues()})
	}
	return ops
}

// transactAcks sends one transaction. If storage refuses it because of one of its rows, or the marker, it sends
// a transaction for each event and returns false.
func (s *Store) transactAcks(ctx context.Context, lane int, gone []Event, later []Postponement,
	ops []storage.Op) (whole bool, err error) {
	_, err = s.Table.Transact(ctx, s.partitionOf(lane), ops)
	if !storage.Is(err, storage.NotFound) && !storage.Is(err, storage.Precondition) {
		return err == nil, err
	}
	alone := func(ops []storage.Op) error {
		_, err := s.Table.Transact(ctx, s.partitionOf(lane), ops)
		if storage.Is(err, storage.NotFound) {
			return nil // an earlier request of ours, or another sender, has removed it
		}
		return err
	}
	for _, m := range gone {
		if err := alone(ackOps([]Event{m}, nil)); err != nil {
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

// ClearOutboxMarker removes the marker of an empty outbox, if it has this version. It returns false if the
// marker was written again meanwhile, or was removed by an earlier try.
func (s *Store) ClearOutboxMarker(ctx context.Context, lane int, note storage.ETag) (bool, error) {
	_, err := s.Table.Transact(ctx, s.partitionOf(lane),
		[]storage.Op{{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: note}})
	if storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition) {
		return false, nil
	}
	return err == nil, err
}
