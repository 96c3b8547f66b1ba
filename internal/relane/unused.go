package relane

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/lane/epochs"
)

// The number of lanes and the folding decide where a key's messages are. While no message was ever
// stored, no key has a place yet. So a process whose settings have another number or folding than
// storage takes them into storage at its start, by the same change as the command. It does so only
// if storage is unused:
//
//   - No lane of any epoch ever took a message.
//   - No schedule, batch or bulk replay is stored. Their owners know the number that is in storage
//     now.
//
// The process checks that before the change begins, and again after all heads are sealed, when no
// message can be appended any more. If a message came meanwhile, the process undoes the change.

// ErrUsed means that storage is not unused.
var ErrUsed = errors.New("storage was used with another number of lanes, or with another folding of keys")

// TakeLanes changes the lanes to those of an epoch, as Run does, if storage is unused. Otherwise it
// returns ErrUsed, and the lanes stay. It also continues such a change of a process that has
// crashed. If it fails with another error, the change can be unfinished: call TakeLanes again.
func (c Resharder) TakeLanes(ctx context.Context, goal epochs.Epoch) error {
	if err := c.checkUnused(ctx, goal); err != nil {
		return err
	}
	unused := c
	unused.onlyUnused = true
	return unused.Run(ctx, Target{Lanes: goal.Lanes, Fold: &goal.Fold})
}

// checkUnused returns ErrUsed if storage is not unused, or if a change to other lanes is under way.
func (c Resharder) checkUnused(ctx context.Context, goal epochs.Epoch) error {
	return c.retryTransient(ctx, func() error {
		meta, err := epochs.Read(ctx, c.Store.Table)
		if err != nil {
			return err
		}

		isOther := meta.Step == epochs.StepUndo || meta.Step != epochs.StepNone &&
			!meta.Next.HasSameLanes(goal)
		if isOther || meta.Open.Number > 1 && !meta.IsUnused {
			return ErrUsed
		}

		isUnused, err := c.Store.IsUnused(ctx, meta)
		if err == nil && !isUnused {
			err = ErrUsed
		}

		return err
	})
}

// undoIfUsed is called after all heads are sealed. If a message came meanwhile, it undoes the
// change, and returns ErrUsed. It leaves a change that the command has begun as it is.
func (c Resharder) undoIfUsed(ctx context.Context, meta epochs.Record) error {
	err := c.checkUnused(ctx, meta.Next)
	if !errors.Is(err, ErrUsed) || !meta.IsUnused {
		return err
	}

	_, undoErr := epochs.Update(ctx, c.Store.Table, func(m *epochs.Record) error {
		if m.Step != epochs.StepDrain || m.Next != meta.Next {
			return epochs.ErrNoChange
		}
		m.Step = epochs.StepUndo
		return nil
	})
	if undoErr == nil {
		undoErr = c.undoChange(ctx)
	}

	if undoErr != nil {
		return fmt.Errorf("undo the change: %w", undoErr)
	}

	return err
}
