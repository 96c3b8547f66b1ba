package lane

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/storage"
)

// The number of lanes is kept in a partition of its own.
const (
	metaPartition = "meta"
	lanesKey      = "lanes"
)

// ErrLanes says that the setting names another number of lanes than storage.
var ErrLanes = errors.New("the number of lanes differs from storage's")

// Open makes the store ready: it records the number of lanes when storage is first used,
// and refuses another number later, because a key's lane depends on it. Control rows that
// are missing are made.
func (s *Store) Open(ctx context.Context) error {
	row, err := s.Table.Get(ctx, metaPartition, lanesKey)
	if storage.Is(err, storage.NotFound) {
		_, err = s.Table.Transact(ctx, metaPartition, []storage.Op{{Kind: storage.Insert, Key: lanesKey,
			Values: map[string]any{"Epoch": int64(1), "Lanes": int64(s.Lanes)}}})
		if err != nil && !storage.Is(err, storage.Conflict) {
			return err
		}
		row, err = s.Table.Get(ctx, metaPartition, lanesKey)
	}
	if err != nil {
		return err
	}
	v := values{row.Values}
	s.Epoch = int(v.int("Epoch"))
	if n := int(v.int("Lanes")); n != s.Lanes {
		return fmt.Errorf("%w: storage was first used with lanes: %d, and the setting says %d: set it back to %d, or use another WEIR_PREFIX", ErrLanes, n, s.Lanes, n)
	}
	for lane := range s.Lanes {
		if err := s.Ensure(ctx, lane); err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
	}
	return nil
}
