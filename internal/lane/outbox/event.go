package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// CallbackTo is the value of Event.Receiver in the event for a message's callback. Receivers in the
// settings have other names.
const CallbackTo = "callback"

// Event is an event for one receiver.
type Event struct {
	Key  string // Key and Receiver together identify an event in its lane
	Type string // such as message.dead
	At   time.Time
	// sequence number of the message that the event is about; 0 = no message
	Seq      int64
	Stage    weir.Stage // stage of that message at the time of the event
	Receiver string     // name of the receiver, or CallbackTo
	URL      string     // callback address, if Receiver is CallbackTo
	ID       string     // header webhook-id; empty in a FinalEvent before its first request
	Body     []byte     // body of the requests; nil in a FinalEvent before its first request
	NextAt   time.Time  // time at which to send the event, in whole microseconds
	// number of tries; if a backoff prevents the request, the try still counts
	Attempts     int
	FirstTriedAt time.Time // time of the first try; zero = no try
	rowKey       string    // key of the row from which eventFrom read the event
}

// FinalEvent returns the event that tells a receiver that a message became final. If receiver is
// CallbackTo, url is the callback address; otherwise url is empty.
func FinalEvent(seq int64, stage weir.Stage, at time.Time, receiver, url string) Event {
	at = at.UTC().Truncate(time.Microsecond)
	return Event{Key: rows.Hash("final", rows.SeqPos(seq), string(stage),
		at.Format(time.RFC3339Nano)), Type: "message." + string(stage),
		At: at, Seq: seq, Stage: stage, Receiver: receiver, URL: url, NextAt: at}
}

// NewEvent returns an event about a lane or a job. The argument "name" identifies the event among
// the lane's events of this kind.
func NewEvent(kind, name string, at time.Time, receiver string, body []byte) Event {
	at = at.UTC().Truncate(time.Microsecond)
	id := rows.Hash(kind, name)
	return Event{Key: id, Type: kind, At: at, Receiver: receiver, ID: "evt_" + id, Body: body,
		NextAt: at}
}

// EventOps returns the operations that put an event into the outbox: one for the event's row, and
// one for the marker. A transaction with several events must have the marker's operation only once.
// If a process repeats the operations after the event was sent or postponed, the repetition adds
// the event a second time.
func EventOps(e Event) (event, marker storage.Op) {
	return e.upsertOp(), storage.Op{Kind: storage.Upsert, Key: rows.OutboxKey,
		Values: rows.Values(rows.EventAt.Is(e.NextAt))}
}

// enqueueOps returns the operations that put one or more events into the outbox.
func enqueueOps(events []Event) []storage.Op {
	ops := make([]storage.Op, 0, len(events)+1)
	for _, e := range events {
		ops = append(ops, e.upsertOp())
	}
	_, marker := EventOps(events[0])
	return append(ops, marker)
}

func (e Event) upsertOp() storage.Op {
	return storage.Op{Kind: storage.Upsert, Key: e.key(), Values: e.values()}
}

func (e Event) key() string {
	return rows.EventPrefix + rows.TimePos(e.NextAt) + "_" + e.Key + "_" + e.Receiver
}

func (e Event) values() map[string]any {
	v := rows.Sparse(rows.EventType.Is(e.Type), rows.EventAt.Is(e.At), rows.Seq.Is(e.Seq),
		rows.Stage.Is(string(e.Stage)), rows.URL.Is(e.URL), rows.EventID.Is(e.ID),
		rows.EventAttempts.Is(int64(e.Attempts)), rows.FirstTriedAt.Is(e.FirstTriedAt))
	if e.Body != nil {
		rows.Put(v, rows.Body.Is(e.Body))
	}
	return v
}

// CheckRow returns an error if a row of the outbox is damaged.
func CheckRow(r storage.Row) error {
	_, err := eventFrom(r)
	return err
}

func eventFrom(r storage.Row) (Event, error) {
	parts := strings.SplitN(strings.TrimPrefix(r.Key, rows.EventPrefix), "_", 3)
	if len(parts) != 3 {
		return Event{}, errors.New("key: it names no event")
	}

	nextAt, err := rows.ParseTimePos(parts[0])
	if err != nil {
		return Event{}, fmt.Errorf("key: %w", err)
	}

	v := r.Values

	return Event{Key: parts[1], Receiver: parts[2], NextAt: nextAt, Type: rows.EventType.Of(v),
		At: rows.EventAt.Of(v), Seq: rows.Seq.Of(v),
		Stage: weir.Stage(rows.Stage.Of(v)), URL: rows.URL.Of(v), ID: rows.EventID.Of(v),
		Body:     rows.Body.Of(v),
		Attempts: int(rows.EventAttempts.Of(v)), FirstTriedAt: rows.FirstTriedAt.Of(v),
		rowKey: r.Key}, nil
}
