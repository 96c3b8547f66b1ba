package outbox

import (
	"context"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// LaneState records for which receivers the outbox got an event about the lane's present pause or
// backlog. It is stored in a marker row of the lane, so that no process makes such an event a
// second time.
type LaneState struct {
	ETag            storage.ETag // ETag of the row; empty = there is no row
	PausedSince     time.Time    // start of the present pause; zero = the lane is not paused
	PausedReceivers []string     // receivers with an event about the pause
	BehindReceivers []string     // receivers with an event about the backlog
	// receivers with an event about a closed brake: <receiver>/<fingerprint>
	Brakes []string
}

// LaneStateOf returns the LaneState in a lane's control rows; zero = the lane has no such row.
func LaneStateOf(c controlRows) LaneState {
	r, ok := c.Marker(rows.LaneEventsKey)
	if !ok {
		return LaneState{}
	}

	v := r.Values
	return LaneState{ETag: r.ETag, PausedSince: rows.PausedSince.Of(v),
		PausedReceivers: strings.Fields(rows.PausedReceivers.Of(v)),
		BehindReceivers: strings.Fields(rows.BehindReceivers.Of(v)),
		Brakes:          strings.Fields(rows.BrakeReceivers.Of(v))}
}

// SaveLaneState writes the row of s, and puts the events into the outbox in the same transaction.
// If another process has changed the row after LaneStateOf read it, SaveLaneState writes nothing
// and returns false.
func (o Outbox) SaveLaneState(ctx context.Context, s LaneState, events []Event) (bool, error) {
	v := rows.Sparse(rows.PausedSince.Is(s.PausedSince),
		rows.PausedReceivers.Is(strings.Join(s.PausedReceivers, " ")),
		rows.BehindReceivers.Is(strings.Join(s.BehindReceivers, " ")),
		rows.BrakeReceivers.Is(strings.Join(s.Brakes, " ")))

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
	case storage.Is(err, storage.Conflict), storage.Is(err, storage.Precondition),
		storage.Is(err, storage.NotFound):
		return false, nil
	}

	return err == nil, err
}
