package relane

import (
	"context"
	"fmt"

	"weir/internal/lane"
)

// A bulk replay goes through the lanes of one epoch, and its note stands in one of them. So
// no change begins while one is under way. One that begins at the same moment is found when
// the heads are sealed, for from then on none can begin.

// noReplays says whether a change to n lanes that is not begun yet has to wait for bulk
// replays.
func (c Config) noReplays(ctx context.Context, n int) error {
	return c.patiently(ctx, func() error {
		meta, err := c.Store.Meta(ctx)
		if err != nil || meta.Step != lane.StepNone || meta.Open.Lanes == n {
			return err
		}
		jobs, err := c.Store.In(meta.Open).Jobs(ctx)
		if err == nil && len(jobs) > 0 {
			err = fmt.Errorf("%w (%d): let them end or cancel them, and run this again", ErrReplays, len(jobs))
		}
		return err
	})
}

// noneSlipped looks for bulk replays once the heads are sealed.
func (c Config) noneSlipped(ctx context.Context) error {
	return c.patiently(ctx, func() error {
		jobs, err := c.Store.Jobs(ctx)
		if err == nil && len(jobs) > 0 {
			err = fmt.Errorf("%w (%d): cancel them and run this again; or give the change up with --undo, and run it again when they are over", ErrReplays, len(jobs))
		}
		return err
	})
}
