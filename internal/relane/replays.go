package relane

import (
	"context"
	"fmt"

	"weir/internal/lane/epochs"
	"weir/internal/lane/jobrow"
)

// A bulk replay works in the lanes of one epoch, so the number of lanes must not change while a
// bulk replay runs. There are two checks:
//   - checkNoReplays, before the change begins.
//   - recheckNoReplays, after the heads are sealed. It finds bulk replays that started meanwhile.
//     No bulk replay can start after the heads are sealed.

// checkNoReplays returns ErrReplays if a bulk replay runs. It does not look for bulk replays if a
// change is already under way, or if the lanes are those of the goal. In both cases, no new change
// begins.
func (c Resharder) checkNoReplays(ctx context.Context, goal epochs.Epoch) error {
	return c.retryTransient(ctx, func() error {
		meta, err := epochs.Read(ctx, c.Store.Table)
		if err != nil || meta.Step != epochs.StepNone || meta.Open.HasSameLanes(goal) {
			return err
		}

		jobs, err := jobrow.ReadAll(ctx, c.Store.ForEpoch(meta.Open))
		if err == nil && len(jobs) > 0 {
			err = fmt.Errorf("%w (%d): let them end or cancel them, and run this again",
				ErrReplays, len(jobs))
		}

		return err
	})
}

// recheckNoReplays returns ErrReplays if a bulk replay runs.
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
