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

// ErrChanged means that the epoch of this process is over.
var ErrChanged = errors.New("the number of lanes was changed")

const (
	// watchInterval is the time between two reads of the record of epochs, if no nudge comes. An append or a sweep that
	// finds a sealed head sends a nudge. So this time matters only for a process without appends and sweeps.
	watchInterval = 10 * time.Minute
	// underWayInterval is the time between two reads while a change is under way.
	underWayInterval = 2 * time.Second
)

// Watch waits until the epoch of an open store is over, and then returns ErrChanged: the process must end and start
// again. A process that does not know yet that its epoch is over does no harm, because the heads of that epoch are
// sealed and its lanes closed. Watch returns lane.ErrReplaced if the record of epochs was removed or replaced. It
// returns nil when ctx ends. A value from nudge makes Watch read at once.
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
			return fmt.Errorf("%w: the process ends, because its memory belongs to the former lanes", lane.ErrReplaced)
		case err != nil:
			pause = underWayInterval
		case meta.Open.Number != store.Epoch:
			return fmt.Errorf("%w from %d to %d: the process ends, to be started with that setting", ErrChanged,
				store.Lanes, meta.Open.Lanes)
		case meta.Step != epochs.StepNone:
			pause = underWayInterval
		default:
			pause = watchInterval
		}
	}
}
