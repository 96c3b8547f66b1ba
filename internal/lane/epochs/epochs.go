// Package epochs keeps the record of epochs, the row meta/lanes: the open epoch, its number of lanes, and the step of
// a change of that number. Package relane makes the change. Package lane creates the record, and removes epochs from
// it when retention has deleted their lanes.
package epochs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// MaxLanes is the largest number of lanes.
const MaxLanes = 1024

// Step is the progress of a change of the number of lanes; package relane describes the change.
type Step string

// The steps of a change. The change can be undone until it reaches StepCount.
const (
	StepNone  Step = ""
	StepDrain Step = "drain"  // heads are sealed; lanes become empty and are closed
	StepCopy  Step = "refile" // all lanes are closed; messages to keep are copied
	StepCount Step = "books"  // the new epoch is open; moved messages are counted in the old lanes
	StepUndo  Step = "undo"   // lanes are reopened, copies removed
)

// Epoch is a time with one number of lanes.
type Epoch struct {
	Number int `json:"epoch"`
	Lanes  int `json:"lanes"`
}

// Record is the row meta/lanes. After it was created, it is written under If-Match only, so every step of a change is
// taken once.
type Record struct {
	ETag    storage.ETag
	Open    Epoch   // the epoch in which messages are filed
	Step    Step    // of a change in progress; StepNone = there is none
	Next    Epoch   // the epoch to which the change leads
	Used    int     // highest epoch number so far; no number is used twice
	Earlier []Epoch // earlier epochs that may still have messages; oldest first
	Origin  string  // a random text, drawn when storage is first used; empty in records of earlier versions
}

func recordFrom(r storage.Row) (Record, error) {
	v := r.Values
	m := Record{ETag: r.ETag, Open: Epoch{int(rows.Epoch.Of(v)), int(rows.Lanes.Of(v))},
		Step: Step(rows.Step.Of(v)),
		Next: Epoch{int(rows.NextEpoch.Of(v)),
			int(rows.NextLanes.Of(v))}, Used: int(rows.UsedEpochs.Of(v)), Origin: rows.Origin.Of(v)}
	m.Used = max(m.Used, m.Open.Number)
	if text := rows.EarlierEpochs.Of(v); text != "" {
		if err := json.Unmarshal([]byte(text), &m.Earlier); err != nil {
			return Record{}, fmt.Errorf("epochs: the record of earlier epochs: %w", err)
		}
	}
	return m, nil
}

func (m Record) values() (map[string]any, error) {
	v := rows.Sparse(
		rows.Epoch.Is(int64(m.Open.Number)), rows.Lanes.Is(int64(m.Open.Lanes)), rows.Step.Is(string(m.Step)),
		rows.NextEpoch.Is(int64(m.Next.Number)), rows.NextLanes.Is(int64(m.Next.Lanes)),
		rows.UsedEpochs.Is(int64(m.Used)), rows.Origin.Is(m.Origin),
	)
	if len(m.Earlier) > 0 {
		text, err := json.Marshal(m.Earlier)
		if err != nil {
			return nil, err
		}
		rows.Put(v, rows.EarlierEpochs.Is(string(text)))
	}
	return v, nil
}

// Read reads the record. NotFound: there is none, because storage was never used.
func Read(ctx context.Context, table storage.Table) (Record, error) {
	row, err := table.Get(ctx, rows.MetaPartition, rows.LanesKey)
	if err != nil {
		return Record{}, err
	}
	return recordFrom(row)
}

// ErrNoChange is returned by a change of the record that has nothing to change.
var ErrNoChange = errors.New("nothing to change")

// Update reads the record, calls change, and writes the record under its ETag, until the write is known to be done,
// or ctx ends. If an answer was lost, change gets the record that it has changed already, and must return
// ErrNoChange. Any other error of change ends the update, unless rows.IsUncertain is true for it.
func Update(ctx context.Context, table storage.Table, change func(*Record) error) (record Record, err error) {
	err = rows.Update(ctx, func() (bool, error) {
		if record, err = Read(ctx, table); err != nil {
			return !rows.IsUncertain(err), err
		}
		if err = change(&record); err != nil {
			return !rows.IsUncertain(err), err
		}
		err = record.write(ctx, table)
		return !rows.IsUncertain(err), err
	}, func(error) time.Duration { return rows.ResendPause })
	switch {
	case errors.Is(err, ErrNoChange):
		return record, nil
	case err != nil:
		return Record{}, err
	}
	return record, nil
}

func (m Record) write(ctx context.Context, table storage.Table) error {
	v, err := m.values()
	if err != nil {
		return err
	}
	_, err = table.Transact(ctx, rows.MetaPartition,
		[]storage.Op{{Kind: storage.Replace, Key: rows.LanesKey, IfMatch: m.ETag, Values: v}})
	return err
}

// Create inserts the first record. If there is a record already, the old record stays, and Create returns nil.
func Create(ctx context.Context, table storage.Table, first Record) error {
	v, err := first.values()
	if err != nil {
		return err
	}
	_, err = table.Transact(ctx, rows.MetaPartition,
		[]storage.Op{{Kind: storage.Insert, Key: rows.LanesKey, Values: v}})
	if storage.Is(err, storage.Conflict) {
		return nil
	}
	return err
}

// ReadLaneCount returns the number of lanes in storage, or 0 if storage was never used. It changes nothing.
func ReadLaneCount(ctx context.Context, table storage.Table) (int, error) {
	row, err := table.Get(ctx, rows.MetaPartition, rows.LanesKey)
	if storage.Is(err, storage.NotFound) {
		return 0, nil
	}
	return int(rows.Lanes.Of(row.Values)), err
}
