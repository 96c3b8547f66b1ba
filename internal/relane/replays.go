package relane

import (
	"context"
	"fmt"

	"weir/internal/lane/epochs"
	"weir/internal/replay/jobrow"
)

// A bulk replay works on the lanes of one epoch, and its row is in one of them. So no change begins while a bulk replay
// runs. A bulk replay may start at the same time as a change. The change finds it after the heads are sealed, because
// from then on no bulk replay can start.

// checkNoReplays returns an error if a change to n lanes has not begun and must wait for bulk
// replays.
func (c Resharder) checkNoReplays(ctx context.Context, n int) error {
	return c.retryTransient(ctx, func() error {
		meta, err := epochs.Read(ctx, c.Store.Table)
		if err != nil || meta.Step != epochs.StepNone || meta.Open.Lanes == n {
			return err
		}
		jobs, err := jobrow.ReadAll(ctx, c.Store.ForEpoch(meta.Open))
		if err == nil && len(jobs) > 0 {
			err = fmt.Errorf("%w (%d): let them end or cancel them, and run this again", ErrReplays, len(jobs))
		}
		return err
	})
}

// recheckNoReplays returns an error if a bulk replay started before the heads were sealed.
func (c Resharder) recheckNoReplays(ctx context.Context) error {
	return c.retryTransient(ctx, func() error {
		jobs, err := jobrow.ReadAll(ctx, c.Store)
		if err == nil && len(jobs) > 0 {
			err = fmt.Errorf("%w (%d): cancel them and run this again; or give the change up with --undo, "+
				"and run it again when they are over", ErrReplays, len(jobs))
		}
		return err
	})
}
