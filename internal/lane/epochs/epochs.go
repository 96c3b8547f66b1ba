// Package epochs reads and writes the row meta/lanes, the record of epochs. The record has the open
// epoch with its number of lanes and its folding of keys, and the earlier epochs. During a change
// of the lanes (see package relane) it also has the step of the change.
package epochs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/internal/fold"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// MaxLanes is the largest allowed number of lanes.
const MaxLanes = 1024

// Step is the progress of a change of the number of lanes. Package relane describes the change.
type Step string

// The steps of a change. The change can be undone until it reaches StepCount.
const (
	StepNone Step = ""
	// no lane takes messages any more; each lane is closed as soon as it is empty
	StepDrain Step = "drain"
	// all lanes are closed; scheduled and dead messages are copied to the next epoch
	StepCopy Step = "refile"
	// the next epoch is open; in each old tail, the copied messages are counted as moved
	StepCount Step = "books"
	StepUndo  Step = "undo" // the old lanes are opened again, and the copies are removed
)

// The steps of a move of everything to another store (see package transfer). No process serves a
// store whose record has one of these steps.
const (
	// everything is being copied to another store; the move can be given up
	StepLeave Step = "leave"
	StepLeft  Step = "left" // the other store has everything
	// everything is being copied to this store; the record has no lanes yet
	StepArrive Step = "arrive"
)

// IsMove reports whether a step is one of a move to another store.
func (s Step) IsMove() bool { return s == StepLeave || s == StepLeft || s == StepArrive }

// Epoch is one epoch. The number of lanes and the folding of keys decide the lane of a key, so they
// never change within an epoch.
type Epoch struct {
	Number int        `json:"epoch"`
	Lanes  int        `json:"lanes"`
	Fold   fold.Rules `json:"fold,omitempty"`
}

// HasSameLanes reports whether each key has the same lane in both epochs.
func (e Epoch) HasSameLanes(other Epoch) bool {
	return e.Lanes == other.Lanes && e.Fold == other.Fold
}

// String returns the number of lanes and, if keys are folded, the folding.
func (e Epoch) String() string {
	if e.Fold == 0 {
		return fmt.Sprint(e.Lanes)
	}
	return fmt.Sprintf("%d with fold: %s", e.Lanes, e.Fold)
}

// Describe returns for example "4 lanes with fold: [case]".
func (e Epoch) Describe() string {
	if e.Fold == 0 {
		return fmt.Sprintf("%d lanes", e.Lanes)
	}
	return fmt.Sprintf("%d lanes with fold: %s", e.Lanes, e.Fold)
}

// Format is the number of the format of all stored rows. A change that a version before it could
// not read raises the number.
const Format = 1

// Errors of Read about the format of storage. Read returns the record with ErrNoFormat.
var (
	ErrNoFormat = errors.New("storage has messages in a format of before the first release, which this version " +
		"cannot read: use another WEIR_PREFIX or folder, or go on with the version that wrote them")
	ErrLaterFormat = errors.New(
		"a later version of Weir has written storage: run that version, or use another " +
			"WEIR_PREFIX or folder")
)

// Record is the row meta/lanes. After the record was created, each write is under If-Match. So two
// processes cannot both take the same step of a change.
type Record struct {
	ETag    storage.ETag
	Open    Epoch   // the epoch whose lanes take new messages
	Step    Step    // the step of the change in progress; StepNone = no change is in progress
	Next    Epoch   // the epoch that the change in progress will open
	Used    int     // the highest epoch number so far; no number is used twice
	Earlier []Epoch // the earlier epochs whose lanes are still stored; oldest first
	// IsUnused says that a process has begun the last change at its start, because storage was
	// unused; see relane.Resharder.TakeLanes. No epoch before that change has messages.
	IsUnused bool
	Origin   string // a random text, set at the first use of storage
	// random id of the move to or from another store; empty = the Step is none of a move
	Move    string
	MovedTo string // name of the other store, for messages; only in the store that is left
}

func recordFrom(r storage.Row) (Record, error) {
	v := r.Values
	folds, err := fold.ParseText(rows.Fold.Of(v))
	if err != nil {
		return Record{}, fmt.Errorf("epochs: the folding of the open epoch: %w", err)
	}

	nextFolds, err := fold.ParseText(rows.NextFold.Of(v))
	if err != nil {
		return Record{}, fmt.Errorf("epochs: the folding of the next epoch: %w", err)
	}

	m := Record{ETag: r.ETag, Open: Epoch{int(rows.Epoch.Of(v)), int(rows.Lanes.Of(v)), folds},
		Step: Step(rows.Step.Of(v)),
		Next: Epoch{int(rows.NextEpoch.Of(v)), int(rows.NextLanes.Of(v)), nextFolds},
		Used: int(rows.UsedEpochs.Of(v)), Origin: rows.Origin.Of(v), IsUnused: rows.IsUnused.Of(v),
		Move: rows.MoveID.Of(v), MovedTo: rows.MovedTo.Of(v)}

	m.Used = max(m.Used, m.Open.Number)
	if text := rows.EarlierEpochs.Of(v); text != "" {
		if err := json.Unmarshal([]byte(text), &m.Earlier); err != nil {
			return Record{}, fmt.Errorf("epochs: the record of earlier epochs: %w", err)
		}
	}

	return m, checkFormat(rows.Format.Of(v))
}

func checkFormat(format int64) error {
	switch {
	case format == 0:
		return ErrNoFormat
	case format > Format:
		return fmt.Errorf("%w (storage has format %d, and this version reads %d)", ErrLaterFormat,
			format, Format)
	}

	return nil
}

func (m Record) values() (map[string]any, error) {
	v := rows.Sparse(
		rows.Format.Is(Format),
		rows.Epoch.Is(int64(m.Open.Number)), rows.Lanes.Is(int64(m.Open.Lanes)),
		rows.Step.Is(string(m.Step)),
		rows.NextEpoch.Is(int64(m.Next.Number)), rows.NextLanes.Is(int64(m.Next.Lanes)),
		rows.Fold.Is(m.Open.Fold.Text()), rows.NextFold.Is(m.Next.Fold.Text()),
		rows.UsedEpochs.Is(int64(m.Used)), rows.Origin.Is(m.Origin), rows.IsUnused.Is(m.IsUnused),
		rows.MoveID.Is(m.Move), rows.MovedTo.Is(m.MovedTo),
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

// Read reads the record. It returns NotFound if storage was never used, and ErrNoFormat or
// ErrLaterFormat if another version has written it.
func Read(ctx context.Context, table storage.Table) (Record, error) {
	row, err := table.Get(ctx, rows.MetaPartition, rows.LanesKey)
	if err != nil {
		return Record{}, err
	}
	return recordFrom(row)
}

// ErrNoChange tells Update that the record needs no change.
var ErrNoChange = errors.New("nothing to change")

// Update reads the record, calls change, and writes the changed record under the ETag that was
// read. It repeats all three steps until the write is known to be done, or ctx ends.
//
// If change returns ErrNoChange, Update writes nothing and returns nil. Because an answer of
// storage can be lost, change can get a record that it has already changed: then it must return
// ErrNoChange. If change returns an error for which rows.IsUncertain is true, for example because
// storage did not answer, Update repeats the steps. Any other error of change ends Update.
func Update(ctx context.Context, table storage.Table, change func(*Record) error) (record Record,
	err error) {
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

// AddFormat writes the record m, which Read has returned with ErrNoFormat, with the present format.
// The caller has found that storage has no messages.
func AddFormat(ctx context.Context, table storage.Table, m Record) error {
	return m.write(ctx, table)
}

// Create inserts the first record. If storage has a record already, Create changes nothing and
// returns nil.
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
