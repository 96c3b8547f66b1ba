package lane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/storage"
)

// Earlier does a share of the lanes of epochs that are over. A lane without messages goes
// as a whole, and an epoch without lanes is forgotten. It gives back the moment before
// which there is nothing more to do; zero = call again soon.
func (r *Retention) Earlier(ctx context.Context) (time.Time, error) {
	meta, err := r.Store.Meta(ctx)
	if err != nil {
		return time.Time{}, err
	}
	later := r.Store.Now().Add(time.Hour)
	if meta.Step != StepNone {
		return later, nil // the last epoch's books are not closed yet
	}
	all := append(slices.Clone(meta.Earlier), meta.Open)
	for i, e := range meta.Earlier {
		at, gone, err := r.epoch(ctx, e, all[i+1])
		if err != nil {
			return time.Time{}, fmt.Errorf("epoch %d: %w", e.Epoch, err)
		}
		if gone {
			if err := r.forget(ctx, e); err != nil {
				return time.Time{}, err
			}
		} else if at.Before(later) {
			later = at
		}
	}
	return later, nil
}

// epoch does a share of one epoch's lanes.
func (r *Retention) epoch(ctx context.Context, e, next Epoch) (soonest time.Time, gone bool, err error) {
	old := *r
	old.Store, old.next = r.Store.In(e), r.Store.In(next)
	gone = true
	soonest = r.Store.Now().Add(24 * time.Hour)
	for lane := range e.Lanes {
		at, empty, err := old.lane(ctx, lane)
		if err != nil {
			return time.Time{}, false, fmt.Errorf("lane %d: %w", lane, err)
		}
		if empty {
			continue
		}
		gone = false
		if at.Before(soonest) {
			soonest = at
		}
	}
	return soonest, gone, nil
}

// lane does one lane's share, and says whether nothing is left of it.
func (r *Retention) lane(ctx context.Context, lane int) (time.Time, bool, error) {
	at, err := r.Run(ctx, lane)
	if storage.Is(err, storage.NotFound) {
		return time.Time{}, true, r.Store.Drop(ctx, lane) // no control rows: it was dropped, to their last at most
	}
	if err != nil {
		return time.Time{}, false, err
	}
	page, err := r.Store.Table.Range(ctx, storage.Query{Partition: r.Store.partition(lane), From: prefixMessage, To: after(prefixMessage), Limit: 1, Columns: []string{"Stage"}})
	if err != nil || len(page.Rows) > 0 {
		return at, false, err
	}
	return time.Time{}, true, r.Store.Drop(ctx, lane)
}

// forget takes an epoch off the record.
func (r *Retention) forget(ctx context.Context, e Epoch) error {
	_, err := r.Store.ChangeMeta(ctx, func(m *Meta) error {
		i := slices.Index(m.Earlier, e)
		if i < 0 || m.Step != StepNone {
			return ErrSame
		}
		m.Earlier = slices.Delete(m.Earlier, i, i+1)
		return nil
	})
	return err
}
