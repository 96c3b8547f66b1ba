package relane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// ErrChanged says that the epoch a process works in is over.
var ErrChanged = errors.New("the number of lanes was changed")

const (
	// watchInterval is how often a process looks whether its epoch is still the open one, when
	// nothing tells it: an append or a sweep that meets a seal nudges, so this is for a process
	// that does neither.
	watchInterval = 10 * time.Minute
	// underWayInterval is how often while a change is under way.
	underWayInterval = 2 * time.Second
)

// Watch waits until the epoch of an open store is over, and says so by ErrChanged: the
// process must end then, and start anew. Nothing bad happens before it knows: heads of its
// epoch are sealed, and its lanes closed. nudge makes it look at once. It comes back with
// nil when ctx ends.
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
		meta, err := store.Meta(ctx)
		switch {
		case storage.Is(err, storage.NotFound), err == nil && !store.IsOf(meta):
			return fmt.Errorf("%w: the process ends, because its memory belongs to the former lanes", lane.ErrBegunAnew)
		case err != nil:
			pause = underWayInterval
		case meta.Open.Epoch != store.Epoch:
			return fmt.Errorf("%w from %d to %d: the process ends, to be started with that setting", ErrChanged, store.Lanes, meta.Open.Lanes)
		case meta.Step != lane.StepNone:
			pause = underWayInterval
		default:
			pause = watchInterval
		}
	}
}
