package lane

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// MaxLanes is the largest number of lanes.
const MaxLanes = 1024

// ErrReplaced means that the record of lanes is not the one that this process has adopted: the table with all
// messages was removed, and another process has created a new one.
var ErrReplaced = errors.New("the lanes' record was removed or replaced")

// ErrLaneCount means that the setting has another number of lanes than storage.
var ErrLaneCount = errors.New("the number of lanes differs from storage's")

// Step is the progress of a change of the number of lanes; package relane describes the change.
type Step string

// The steps of a change. It can be undone until it reaches StepCount.
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

// EpochRecord is the row with the number of lanes. It is written under If-Match only, so every step of a
// change is taken once.
type EpochRecord struct {
	ETag    storage.ETag
	Open    Epoch   // the epoch in which messages are filed
	Step    Step    // of a change in progress
	Next    Epoch   // the epoch to which it leads
	Used    int     // highest epoch number so far; none is used twice
	Earlier []Epoch // they may still have messages; oldest first
	Origin  string  // random, drawn when storage is first used; empty in records of earlier versions
}

func metaFrom(r storage.Row) (EpochRecord, error) {
	v := r.Values
	m := EpochRecord{ETag: r.ETag, Open: Epoch{int(rows.Epoch.Of(v)), int(rows.Lanes.Of(v))},
		Step: Step(rows.Step.Of(v)),
		Next: Epoch{int(rows.NextEpoch.Of(v)),
			int(rows.NextLanes.Of(v))}, Used: int(rows.UsedEpochs.Of(v)), Origin: rows.Origin.Of(v)}
	m.Used = max(m.Used, m.Open.Number)
	if text := rows.EarlierEpochs.Of(v); text != "" {
		if err := json.Unmarshal([]byte(text), &m.Earlier); err != nil {
			return EpochRecord{}, fmt.Errorf("lane: the record of earlier epochs: %w", err)
		}
	}
	return m, nil
}

func (m EpochRecord) recordValues() (map[string]any, error) {
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

// ReadEpochRecord reads the record. NotFound: storage was never used.
func (s *Store) ReadEpochRecord(ctx context.Context) (EpochRecord, error) {
	row, err := s.Table.Get(ctx, rows.MetaPartition, rows.LanesKey)
	if err != nil {
		return EpochRecord{}, err
	}
	return metaFrom(row)
}

// ErrNoChange is returned by a change of the record that has nothing to change.
var ErrNoChange = errors.New("nothing to change")

// UpdateEpochRecord reads the record, calls change, and writes the record under its ETag, until the write is
// known to be done. If an answer was lost, change gets the record that it has changed already, and returns
// ErrNoChange. Any other error of change ends the update.
func (s *Store) UpdateEpochRecord(ctx context.Context, change func(*EpochRecord) error) (record EpochRecord,
	err error) {
	err = rows.Update(ctx, func() (bool, error) {
		if record, err = s.ReadEpochRecord(ctx); err != nil {
			return !isUncertain(err), err
		}
		if err = change(&record); err != nil {
			return !isUncertain(err), err
		}
		err = s.writeEpochRecord(ctx, record)
		return !isUncertain(err), err
	}, func(error) time.Duration { return resendPause })
	switch {
	case errors.Is(err, ErrNoChange):
		return record, nil
	case err != nil:
		return EpochRecord{}, err
	}
	return record, nil
}

func (s *Store) writeEpochRecord(ctx context.Context, meta EpochRecord) error {
	v, err := meta.recordValues()
	if err != nil {
		return err
	}
	_, err = s.Table.Transact(ctx, rows.MetaPartition,
		[]storage.Op{{Kind: storage.Replace, Key: rows.LanesKey, IfMatch: meta.ETag, Values: v}})
	return err
}

// Initialize records the number of lanes when storage is first used, and returns the record. It creates the
// lanes first, so that a process that finds the record finds the lanes, too.
func (s *Store) Initialize(ctx context.Context, lanes int) (EpochRecord, error) {
	meta, err := s.ReadEpochRecord(ctx)
	if !storage.Is(err, storage.NotFound) {
		return meta, err
	}
	first := EpochRecord{Open: Epoch{1, lanes}, Origin: rand.Text()}
	if err := s.ForEpoch(first.Open).ensureAll(ctx); err != nil {
		return EpochRecord{}, err
	}
	v, err := first.recordValues()
	if err != nil {
		return EpochRecord{}, err
	}
	_, err = s.Table.Transact(ctx, rows.MetaPartition,
		[]storage.Op{{Kind: storage.Insert, Key: rows.LanesKey, Values: v}})
	if err != nil && !storage.Is(err, storage.Conflict) {
		return EpochRecord{}, err
	}
	return s.ReadEpochRecord(ctx)
}

// ensureAll creates the missing control rows of all lanes.
func (s *Store) ensureAll(ctx context.Context) error {
	return ForEach(s.Lanes, func(lane int) error {
		if err := s.EnsureControlRows(ctx, lane); err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
		return nil
	})
}

// Open makes the store ready: it records the number of lanes when storage is first used, and
// refuses another number later, because a key's lane depends on it. If storage is in use, it only
// reads that record.
func (s *Store) Open(ctx context.Context) error {
	meta, err := s.Initialize(ctx, s.Lanes)
	if err != nil {
		return err
	}
	if n := meta.Open.Lanes; n != s.Lanes {
		if meta.Next.Lanes == s.Lanes && meta.Step != StepUndo {
			return fmt.Errorf("%w: storage has lanes: %d, and a change to %d is under way: `handler lanes %d` has to come to its end first", ErrLaneCount, n, s.Lanes, s.Lanes)
		}
		return fmt.Errorf("%w: storage has lanes: %d, and the setting says %d: run `handler lanes %d` to change storage, set it back to %d, or use another WEIR_PREFIX", ErrLaneCount, n, s.Lanes, s.Lanes, n)
	}
	s.UseEpochRecord(meta)
	return nil
}

// UseEpochRecord makes the store use the open epoch of the record.
func (s *Store) UseEpochRecord(m EpochRecord) {
	s.Epoch, s.Lanes, s.EarlierEpochs, s.recordOrigin = m.Open.Number, m.Open.Lanes, m.Earlier, m.Origin
}

// UsesEpochRecord reports whether the store has adopted this record, in any step.
func (s *Store) UsesEpochRecord(m EpochRecord) bool { return s.recordOrigin == m.Origin }

// ForEpoch returns a store for the lanes of an epoch. It does not look into earlier epochs.
func (s *Store) ForEpoch(e Epoch) *Store {
	other := *s
	other.Epoch, other.Lanes, other.EarlierEpochs = e.Number, e.Lanes, nil
	return &other
}

// ReadLaneCount returns the number of lanes in storage, or 0 if storage was never used. It changes nothing.
func ReadLaneCount(ctx context.Context, table storage.Table) (int, error) {
	row, err := table.Get(ctx, rows.MetaPartition, rows.LanesKey)
	if storage.Is(err, storage.NotFound) {
		return 0, nil
	}
	return int(rows.Lanes.Of(row.Values)), err
}
