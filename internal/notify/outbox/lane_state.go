package outbox

import (
	"context"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// LaneState describes the events about the lane's own state that are in the outbox or were sent. It is a marker row of
// the lane, so neither a restart nor another process makes these events again.
type LaneState struct {
	ETag            storage.ETag // empty = there is no row
	PausedSince     time.Time    // time since which the lane is paused; zero = it is not paused
	PausedReceivers []string     // receivers that get the event of the pause
	BehindReceivers []string     // receivers that get the event of the backlog
}

// LaneStateOf returns the LaneState in the control rows of a lane.
func LaneStateOf(c controlRows) LaneState {
	r, ok := c.Marker(rows.LaneEventsKey)
	if !ok {
		return LaneState{}
	}
	v := r.Values
	return LaneState{ETag: r.ETag, PausedSince: rows.PausedSince.Of(v),
		PausedReceivers: strings.Fields(rows.PausedReceivers.Of(v)),
		BehindReceivers: strings.Fields(rows.BehindReceivers.Of(v))}
}

// SaveLaneState writes the marker row, and puts events into the outbox in the same transaction. It returns
// false if another process has written the row since this process read it. With an error, it returns false, too.
func (o Outbox) SaveLaneState(ctx context.Context, s LaneState, events []Event) (bool, error) {
	v := rows.Sparse(rows.PausedSince.Is(s.PausedSince),
		rows.PausedReceivers.Is(strings.Join(s.PausedReceivers, " ")),
		rows.BehindReceivers.Is(strings.Join(s.BehindReceivers, " ")))
	op := storage.Op{Kind: storage.Insert, Key: rows.LaneEventsKey, Values: v}
	if s.ETag != "" {
		op.Kind, op.IfMatch = storage.Replace, s.ETag
		if len(v) == 0 {
			op.Kind, op.Values = storage.Delete, nil
		}
	}
	ops := []storage.Op{op}
	if len(events) > 0 {
		ops = append(ops, enqueueOps(events)...)
	}
	_, err := o.Table.Transact(ctx, o.Partition, ops)
	switch {
	case storage.Is(err, storage.Conflict), storage.Is(err, storage.Precondition), storage.Is(err, storage.NotFound):
		return false, nil
	}
	return err == nil, err
}
