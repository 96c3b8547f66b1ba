package lane

import (
	"context"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// EventState is the marker row with the events that were sent about the lane's own state. Because of it,
// neither a restart nor another process sends them again.
type EventState struct {
	ETag        storage.ETag // empty = there is no row
	PausedSince time.Time    // since when the lane is paused; zero = it is not
	PausedReceivers,
	BehindReceivers []string // receivers to which the event was sent
}

// LaneEventState returns the state of the events about the lane's own state.
func (c Control) LaneEventState() EventState {
	r, ok := c.markerRow(rows.LaneEventsKey)
	if !ok {
		return EventState{}
	}
	v := r.Values
	return EventState{ETag: r.ETag, PausedSince: rows.PausedSince.Of(v),
		PausedReceivers: strings.Fields(rows.PausedReceivers.Of(v)),
		BehindReceivers: strings.Fields(rows.BehindReceivers.Of(v))}
}

// SaveLaneEvents writes the marker row, and puts events into the outbox in the same transaction. It returns
// false if another process has written the row since it was read.
func (s *Store) SaveLaneEvents(ctx context.Context, lane int, t EventState, mail []Event) (bool, error) {
	v := rows.Sparse(rows.PausedSince.Is(t.PausedSince),
		rows.PausedReceivers.Is(strings.Join(t.PausedReceivers,
			" ")), rows.BehindReceivers.Is(strings.Join(t.BehindReceivers, " ")))
	op := storage.Op{Kind: storage.Insert, Key: rows.LaneEventsKey, Values: v}
	if t.ETag != "" {
		op.Kind, op.IfMatch = storage.Replace, t.ETag
		if len(v) == 0 {
			op.Kind, op.Values = storage.Delete, nil
		}
	}
	ops := []storage.Op{op}
	if len(mail) > 0 {
		ops = append(ops, eventOps(mail...)...)
	}
	_, err := s.Table.Transact(ctx, s.partitionOf(lane), ops)
	switch {
	case storage.Is(err, storage.Conflict), storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		return false, nil
	}
	return err == nil, err
}

// EnqueueEvents puts events into the outbox that are not about a message or the state of the lane. Putting an
// event again that is still there changes nothing.
func (s *Store) EnqueueEvents(ctx context.Context, lane int, mail []Event) error {
	_, err := s.Table.Transact(ctx, s.partitionOf(lane), eventOps(mail...))
	return err
}

// NewEvent returns an event that is not about the end of a message. event distinguishes it from all others of
// its kind in the lane.
func NewEvent(kind, event string, at time.Time, to string, body []byte) Event {
	at = at.UTC().Truncate(time.Microsecond)
	id := hashParts(kind, event)
	return Event{Key: id, Type: kind, At: at, Receiver: to, ID: "evt_" + id, Body: body, NextAt: at}
}
