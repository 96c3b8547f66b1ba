package lane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/epochs"
	"weir/internal/storage"
)

// RunEarlierEpochs removes expired messages from the lanes of earlier epochs. It works for about
// r.TimeShare in each lane. It deletes a lane that has no messages left. If an epoch has no lanes
// left, RunEarlierEpochs removes the epoch from the record of epochs. It returns the time at which
// it is to be called again; zero = soon.
func (r *Retention) RunEarlierEpochs(ctx context.Context) (time.Time, error) {
	meta, err := epochs.Read(ctx, r.Store.Table)
	if err != nil {
		return time.Time{}, err
	}

	soonest := r.Store.Now().Add(idlePause)
	if meta.Step != epochs.StepNone {
		// the number of lanes is being changed: the counters of closed lanes can still change
		return soonest, nil
	}

	all := append(slices.Clone(meta.Earlier), meta.Open)
	for i, e := range meta.Earlier {
		at, gone, err := r.removeFromEpoch(ctx, e, all[i+1])
		if err != nil {
			return time.Time{}, fmt.Errorf("earlier epoch %d: %w", e.Number, err)
		}

		if gone {
			if err := r.forgetEpoch(ctx, e); err != nil {
				return time.Time{}, err
			}
		} else {
			soonest = clock.Earlier(soonest, at)
		}
	}

	return soonest, nil
}

// removeFromEpoch removes expired messages from the lanes of the epoch e, a few lanes at a time.
// next is the epoch after e. soonest is the time of the next run. gone reports whether all lanes of
// e are deleted.
func (r *Retention) removeFromEpoch(ctx context.Context, e,
	next epochs.Epoch) (soonest time.Time, gone bool, err error) {
	old := *r
	old.Store, old.nextEpoch = r.Store.ForEpoch(e), r.Store.ForEpoch(next)
	at, empty := make([]time.Time, e.Lanes), make([]bool, e.Lanes)
	err = ForEach(e.Lanes, func(lane int) (err error) {
		if at[lane], empty[lane], err = old.removeFromLane(ctx, lane); err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
		return nil
	})

	gone, soonest = true, r.Store.Now().Add(walkInterval)
	for lane := range e.Lanes {
		if !empty[lane] {
			gone, soonest = false, clock.Earlier(soonest, at[lane])
		}
	}

	return soonest, gone, err
}

// removeFromLane removes expired messages from one lane. It returns the time of the next run, and
// reports whether the lane is deleted.
func (r *Retention) removeFromLane(ctx context.Context, lane int) (time.Time, bool, error) {
	at, err := r.RunLane(ctx, lane)
	deletion := laneDeletion{r.Store, lane}
	if storage.Is(err, storage.NotFound) {
		if err := deletion.checkDone(ctx); err != nil {
			return time.Time{}, false, err
		}
		return time.Time{}, true, r.Store.DeleteLane(ctx, lane)
	}

	if err != nil {
		return time.Time{}, false, err
	}

	if any, err := deletion.hasMessages(ctx); any || err != nil {
		return at, false, err
	}

	return time.Time{}, true, r.Store.DeleteLane(ctx, lane)
}

// forgetEpoch removes an epoch from the record of epochs.
func (r *Retention) forgetEpoch(ctx context.Context, e epochs.Epoch) error {
	_, err := epochs.Update(ctx, r.Store.Table, func(m *epochs.Record) error {
		i := slices.Index(m.Earlier, e)
		if i < 0 || m.Step != epochs.StepNone {
			return epochs.ErrNoChange
		}
		m.Earlier = slices.Delete(m.Earlier, i, i+1)
		return nil
	})

	return err
}
