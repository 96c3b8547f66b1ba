package lane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane/epochs"
	"weir/internal/storage"
	"weir/internal/weir"
)

// ErrReplaced means that the table with all messages was removed. The record of epochs that this
// process uses no longer exists, or a new table has another record.
var ErrReplaced = errors.New("the lanes' record was removed or replaced")

// ErrLaneCount means that the number of lanes in the settings differs from the number in storage.
var ErrLaneCount = errors.New("the number of lanes differs from storage's")

// ErrFold means that the folding of keys in the settings differs from the folding in storage.
var ErrFold = errors.New("the folding of keys differs from storage's")

// ErrMoved means that no process may serve this store: everything in it was copied to another
// store, or is being copied.
var ErrMoved = errors.New("this store is not in use")

// CheckNotMoved returns ErrMoved, with the reason and the remedy, if a record has a step of a move
// to another store.
func CheckNotMoved(m epochs.Record) error {
	switch m.Step {
	case epochs.StepLeave:
		return fmt.Errorf("%w: everything is being copied to %s: run the same `weir copy` again, or give it up with "+
			"`weir copy --undo`", ErrMoved, m.MovedTo)
	case epochs.StepLeft:
		return fmt.Errorf("%w: everything was copied to %s, and goes on there; if that store cannot be "+
			"used yet, run the same `weir copy` again", ErrMoved, m.MovedTo)
	case epochs.StepArrive:
		return fmt.Errorf("%w: it is a half copy of another store: run the same `weir copy` again",
			ErrMoved)
	}

	return nil
}

// IsOtherLanes reports whether an error of Open means that the settings and storage have different
// lanes.
func IsOtherLanes(err error) bool { return errors.Is(err, ErrLaneCount) || errors.Is(err, ErrFold) }

// IsPermanent reports whether an error of Open stays until a person changes the settings, storage
// or the version of the program.
func IsPermanent(err error) bool {
	return IsOtherLanes(err) || errors.Is(err, epochs.ErrNoFormat) ||
		errors.Is(err, epochs.ErrLaterFormat) ||
		errors.Is(err, ErrMoved)
}

// Initialize returns the record of epochs. If everything was moved to another store, it returns
// ErrMoved. If storage has no record yet, Initialize creates the lanes, and then the record, with
// the number of lanes and the folding of the first epoch. In this order, a process that finds the
// record also finds the lanes.
func (s *Store) Initialize(ctx context.Context, first epochs.Epoch) (epochs.Record, error) {
	meta, err := epochs.Read(ctx, s.Table)
	if errors.Is(err, epochs.ErrNoFormat) {
		return s.addFormat(ctx, meta)
	}

	if err == nil {
		err = CheckNotMoved(meta)
	}

	if !storage.Is(err, storage.NotFound) {
		return meta, err
	}

	first.Number = 1
	record := epochs.Record{Open: first, Origin: rand.Text()}
	if err := s.ForEpoch(first).ensureAll(ctx); err != nil {
		return epochs.Record{}, err
	}

	if err := epochs.Create(ctx, s.Table, record); err != nil {
		return epochs.Record{}, err
	}

	if meta, err = epochs.Read(ctx, s.Table); err == nil {
		err = CheckNotMoved(meta)
	}

	return meta, err
}

// addFormat writes the present format into the record of a storage without a format, if the storage
// is unused. Otherwise it returns epochs.ErrNoFormat: rows of unknown meaning could lose messages.
func (s *Store) addFormat(ctx context.Context, meta epochs.Record) (epochs.Record, error) {
	isUnused, err := s.IsUnused(ctx, meta)
	if err != nil {
		return epochs.Record{}, err
	}
	if !isUnused {
		return epochs.Record{}, epochs.ErrNoFormat
	}

	if err := epochs.AddFormat(ctx, s.Table, meta); err != nil {
		return epochs.Record{}, err
	}

	return epochs.Read(ctx, s.Table)
}

// usedPartitions have the rows of schedules, batches and finished bulk replays.
var usedPartitions = []string{"schedules", "batches", "replays"}

// IsUnused reports whether no lane ever took a message, and no schedule, batch or finished bulk
// replay is stored. The parameter meta is the record of epochs.
func (s *Store) IsUnused(ctx context.Context, meta epochs.Record) (bool, error) {
	if meta.Open.Number > 1 && !meta.IsUnused || meta.Open.Lanes > epochs.MaxLanes {
		return false, nil
	}

	for _, partition := range usedPartitions {
		page, err := s.Table.Range(ctx,
			storage.Query{Partition: partition, Limit: 1, Columns: []string{}})
		if err != nil || len(page.Rows) > 0 || page.More {
			return false, err
		}
	}

	open := s.ForEpoch(meta.Open)
	hasTaken := make([]bool, meta.Open.Lanes)
	err := ForEach(meta.Open.Lanes, func(number int) error {
		c, err := open.ReadControl(ctx, number)
		hasTaken[number] = c.Head.Next > 1
		return err
	})

	for _, taken := range hasTaken {
		if taken {
			return false, err
		}
	}

	return err == nil, err
}

// ensureAll creates the missing control rows of all lanes.
func (s *Store) ensureAll(ctx context.Context) error {
	return ForEach(s.Lanes, func(lane int) error {
		if err := s.EnsureControlRows(ctx, lane, 0); err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
		return nil
	})
}

// Open calls Initialize, and prepares the store for the open epoch. If storage has another number
// of lanes than the store, Open returns ErrLaneCount, and if it folds keys in another way, ErrFold,
// because a key's lane depends on both.
func (s *Store) Open(ctx context.Context) error {
	want := epochs.Epoch{Lanes: s.Lanes, Fold: s.Fold}
	meta, err := s.Initialize(ctx, want)
	if err != nil {
		return err
	}
	if !meta.Open.HasSameLanes(want) {
		return describeOtherLanes(meta, want)
	}

	s.UseEpochRecord(meta)

	return nil
}

// describeOtherLanes returns the error of Open if storage has other lanes than the settings, with
// the remedy.
func describeOtherLanes(meta epochs.Record, want epochs.Epoch) error {
	open := meta.Open
	command := fmt.Sprintf("weir lanes %d", want.Lanes)
	if open.Fold != want.Fold {
		command += " --fold " + want.Fold.Flag()
	}

	isUnderWay := meta.Step != epochs.StepNone && meta.Step != epochs.StepUndo &&
		meta.Next.HasSameLanes(want)

	switch {
	case open.Lanes != want.Lanes && open.Fold != want.Fold:
		return fmt.Errorf("%w, and %w: storage has lanes: %d and fold: %s, and the settings have lanes: %d and "+
			"fold: %s: %s", ErrLaneCount, ErrFold, open.Lanes, open.Fold, want.Lanes, want.Fold,
			describeRemedy(command, isUnderWay, "them"))

	case open.Fold != want.Fold:
		return fmt.Errorf("%w: storage has fold: %s, and the setting is %s: %s", ErrFold,
			open.Fold, want.Fold, describeRemedy(command, isUnderWay, "it"))
	case isUnderWay:
		return fmt.Errorf("%w: storage has lanes: %d, and a change to %d is under way: end `%s` first",
			ErrLaneCount, open.Lanes, want.Lanes, command)
	}

	return fmt.Errorf("%w: storage has lanes: %d, and the setting is %d: run `%s` to change storage, "+
		"set it back to %d, or use another WEIR_PREFIX or folder", ErrLaneCount, open.Lanes,
		want.Lanes,
		command, open.Lanes)
}

func describeRemedy(command string, isUnderWay bool, settings string) string {
	if isUnderWay {
		return fmt.Sprintf("a change to that is under way: end `%s` first", command)
	}
	return fmt.Sprintf("run `%s` to change storage, set %s back, or use another WEIR_PREFIX or folder",
		command, settings)
}

// UseEpochRecord makes the store use the open epoch of the record.
func (s *Store) UseEpochRecord(m epochs.Record) {
	s.Epoch, s.Lanes, s.Fold, s.EarlierEpochs, s.recordOrigin = m.Open.Number, m.Open.Lanes,
		m.Open.Fold, m.Earlier,
		m.Origin
}

// UsesEpochRecord reports whether m is the record of epochs that the store uses. A record with a
// changed content is still the same record. The record of a new table is a different record.
func (s *Store) UsesEpochRecord(m epochs.Record) bool { return s.recordOrigin == m.Origin }

// ErrClosed means that the lane's epoch is over, or about to end. No process is allowed to hold the
// lane.
var ErrClosed = errors.New("closed: the number of lanes is being changed")

// sealedRetry is the Retry-After of a call that is refused because the lane is sealed. A lane is
// sealed during a change of the number of lanes. Such a change takes seconds if the lanes become
// empty soon.
const sealedRetry = 10 * time.Second

// SealedError returns the error of a change that is refused during a change of the number of lanes.
func SealedError(op string) error {
	return &weir.Error{Kind: weir.Unavailable, Op: op,
		Message: "the number of lanes is being changed; try again", RetryAfter: sealedRetry}
}

// ClockSkew is the largest difference between the clocks of two processes for which Weir works
// correctly.
const ClockSkew = 2 * time.Second

// CheckPosition returns an error if a position was reached in another epoch than the one that is
// open. Each call that continues a list, a search or a bulk change checks its position with
// CheckPosition. A change of the number of lanes opens a new epoch and gives other positions to
// waiting and dead messages, so a call that continued at the position would miss messages and say
// that it is complete.
func (s *Store) CheckPosition(op string, epoch int) error {
	if epoch == s.Epoch {
		return nil
	}
	message := "the number of lanes has changed since the earlier answer: begin anew, without continue"
	return &weir.Error{Kind: weir.Malformed, Op: op, Message: message,
		Problems: []weir.Problem{{Path: "continue", Rule: "outdated", Message: message}}}
}
