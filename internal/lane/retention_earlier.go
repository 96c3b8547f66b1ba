package lane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// RunEarlierEpochs does a share of the lanes of epochs that are over. A lane without messages goes
// as a whole, and an epoch without lanes is forgotten. It returns the moment before which
// there is nothing more to do; zero = call again soon.
func (r *Retention) RunEarlierEpochs(ctx context.Context) (time.Time, error) {
	meta, err := r.Store.ReadEpochRecord(ctx)
	if err != nil {
		return time.Time{}, err
	}
	soonest := r.Store.Now().Add(idlePause)
	if meta.Step != StepNone {
		return soonest, nil // the last epoch's books are not closed yet
	}
	all := append(slices.Clone(meta.Earlier), meta.Open)
	for i, e := range meta.Earlier {
		at, gone, err := r.epoch(ctx, e, all[i+1])
		if err != nil {
			return time.Time{}, fmt.Errorf("earlier epoch %d: %w", e.Number, err)
		}
		if gone {
			if err := r.forget(ctx, e); err != nil {
				return time.Time{}, err
			}
		} else {
			soonest = earlier(soonest, at)
		}
	}
	return soonest, nil
}

// epoch does a share of one epoch's lanes, a few lanes at a time.
func (r *Retention) epoch(ctx context.Context, e, next Epoch) (soonest time.Time, gone bool, err error) {
	old := *r
	old.Store, old.next = r.Store.ForEpoch(e), r.Store.ForEpoch(next)
	at, empty := make([]time.Time, e.Lanes), make([]bool, e.Lanes)
	err = ForEach(e.Lanes, func(lane int) (err error) {
		if at[lane], empty[lane], err = old.lane(ctx, lane); err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
		return nil
	})
	gone, soonest = true, r.Store.Now().Add(rewalk)
	for lane := range e.Lanes {
		if !empty[lane] {
			gone, soonest = false, earlier(soonest, at[lane])
		}
	}
	return soonest, gone, err
}

// lane does one lane's share, and reports whether nothing is left of it.
func (r *Retention) lane(ctx context.Context, lane int) (time.Time, bool, error) {
	at, err := r.RunLane(ctx, lane)
	if storage.Is(err, storage.NotFound) {
		if err := r.Store.checkDropped(ctx, lane); err != nil {
			return time.Time{}, false, err
		}
		return time.Time{}, true, r.Store.DeleteLane(ctx, lane)
	}
	if err != nil {
		return time.Time{}, false, err
	}
	if any, err := r.Store.hasRows(ctx, lane, rows.MessagePrefix, rows.PrefixEnd(rows.MessagePrefix)); any || err != nil {
		return at, false, err
	}
	return time.Time{}, true, r.Store.DeleteLane(ctx, lane)
}

// forget takes an epoch off the record.
func (r *Retention) forget(ctx context.Context, e Epoch) error {
	_, err := r.Store.UpdateEpochRecord(ctx, func(m *EpochRecord) error {
		i := slices.Index(m.Earlier, e)
		if i < 0 || m.Step != StepNone {
			return ErrNoChange
		}
		m.Earlier = slices.Delete(m.Earlier, i, i+1)
		return nil
	})
	return err
}
