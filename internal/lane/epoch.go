package lane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"weir/internal/lane/epochs"
	"weir/internal/storage"
)

// ErrReplaced means that the table with all messages was removed. The record of epochs that this process uses no longer
// exists, or a new table has another record.
var ErrReplaced = errors.New("the lanes' record was removed or replaced")

// ErrLaneCount means that the number of lanes in the settings differs from the number in storage.
var ErrLaneCount = errors.New("the number of lanes differs from storage's")

// Initialize returns the record of epochs. If storage has none yet, Initialize creates the lanes, and then the record.
// In this order, a process that finds the record also finds the lanes.
func (s *Store) Initialize(ctx context.Context, lanes int) (epochs.Record, error) {
	meta, err := epochs.Read(ctx, s.Table)
	if !storage.Is(err, storage.NotFound) {
		return meta, err
	}
	first := epochs.Record{Open: epochs.Epoch{Number: 1, Lanes: lanes}, Origin: rand.Text()}
	if err := s.ForEpoch(first.Open).ensureAll(ctx); err != nil {
		return epochs.Record{}, err
	}
	if err := epochs.Create(ctx, s.Table, first); err != nil {
		return epochs.Record{}, err
	}
	return epochs.Read(ctx, s.Table)
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

// Open calls Initialize, and prepares the store for the open epoch. If storage has another number of lanes than the
// store, Open returns ErrLaneCount, because a key's lane depends on that number.
func (s *Store) Open(ctx context.Context) error {
	meta, err := s.Initialize(ctx, s.Lanes)
	if err != nil {
		return err
	}
	if n := meta.Open.Lanes; n != s.Lanes {
		if meta.Next.Lanes == s.Lanes && meta.Step != epochs.StepUndo {
			return fmt.Errorf("%w: storage has lanes: %d, and a change to %d is under way: end `weir lanes %d` first",
				ErrLaneCount, n, s.Lanes, s.Lanes)
		}
		return fmt.Errorf("%w: storage has lanes: %d, and the setting is %d: run `weir lanes %d` to change storage, "+
			"set it back to %d, or use another WEIR_PREFIX", ErrLaneCount, n, s.Lanes, s.Lanes, n)
	}
	s.UseEpochRecord(meta)
	return nil
}

// UseEpochRecord makes the store use the open epoch of the record.
func (s *Store) UseEpochRecord(m epochs.Record) {
	s.Epoch, s.Lanes, s.EarlierEpochs, s.recordOrigin = m.Open.Number, m.Open.Lanes, m.Earlier, m.Origin
}

// UsesEpochRecord reports whether m is the record of epochs that the store uses. A record with a changed content is
// still the same record. The record of a new table is a different record.
func (s *Store) UsesEpochRecord(m epochs.Record) bool { return s.recordOrigin == m.Origin }

// ForEpoch returns a store for the lanes of an epoch. The returned store does not look into earlier epochs.
func (s *Store) ForEpoch(e epochs.Epoch) *Store {
	other := *s
	other.Epoch, other.Lanes, other.EarlierEpochs = e.Number, e.Lanes, nil
	return &other
}
