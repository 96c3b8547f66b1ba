package relane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/storage"
)

// ErrChanged means that the number of lanes, or the folding of keys, was changed after this process
// had started.
var ErrChanged = errors.New("the number of lanes was changed")

const (
	// watchInterval is the time between two reads of the epochs.Record, if Watch gets nothing from
	// its channel nudge. The interval can be long, because a process sends to nudge when an append
	// or a sweep finds a sealed head.
	watchInterval = 10 * time.Minute
	// underWayInterval is the time between two reads while a change is under way, or after a failed
	// read.
	underWayInterval = 2 * time.Second
)

// Watch waits until the number of lanes has changed, and then returns ErrChanged: the process must
// end and start again. If Watch notices the change late, the process does no harm: its lanes are
// closed, so they accept no message and have no holder. The store must be open.
//
// Watch returns lane.ErrMoved if everything is copied to another store, and lane.ErrReplaced if the
// stored epochs.Record was removed or replaced. It returns nil when ctx ends. A value from nudge
// makes Watch read the record at once.
func Watch(ctx context.Context, store *lane.Store, nudge <-chan struct{}) error {
	for pause := watchInterval; ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-nudge:
		case <-ctx.Done():
		}

		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}

		meta, err := epochs.Read(ctx, store.Table)
		switch {
		case storage.Is(err, storage.NotFound), err == nil && !store.UsesEpochRecord(meta):
			return fmt.Errorf(
				"%w: the process ends, because its memory belongs to the former lanes",
				lane.ErrReplaced)

		case err != nil:
			pause = underWayInterval
		case meta.Step.IsMove():
			return fmt.Errorf("the process ends: %w", lane.CheckNotMoved(meta))
		case meta.Open.Number != store.Epoch:
			return fmt.Errorf("%w from %s to %s: the process ends, to be started with that setting",
				ErrChanged, store.Present(), meta.Open)
		case meta.Step != epochs.StepNone:
			pause = underWayInterval
		default:
			pause = watchInterval
		}
	}
}
