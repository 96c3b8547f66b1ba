package batch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane/epochs"
	"weir/internal/panics"
	"weir/internal/weir"
	"weir/internal/wire"
)

// removedStage is the stage under which GetStages counts the messages that retention has removed.
const removedStage weir.Stage = "removed"

// readsAtOnce is the number of windows that countStages reads at the same time. A window is a run
// of consecutive parts of a batch.
const readsAtOnce = 4

// Get returns a batch with its problems, and with the number of its messages by stage.
func (r *Runner) Get(ctx context.Context, id string) (wire.Batch, error) {
	b, err := r.GetProgress(ctx, id)
	if err == nil && b.Filed > 0 {
		b.Stages, err = r.GetStages(ctx, id)
	}
	return b, err
}

// GetProgress returns a batch with its problems, but without the stages of its messages. It reads
// storage at most twice.
func (r *Runner) GetProgress(ctx context.Context, id string) (wire.Batch, error) {
	one, err := r.readBatch(ctx, id)
	if err != nil {
		return wire.Batch{}, apiError(err)
	}

	b := one.batch
	if b.Invalid > 0 {
		b.Problems, err = r.loadProblems(ctx, id)
	}

	return b, apiError(err)
}

// GetStages counts the messages of a batch by their present stage. The number of reads grows with
// the size of the batch.
func (r *Runner) GetStages(ctx context.Context, id string) (map[weir.Stage]int, error) {
	one, err := r.readBatch(ctx, id)
	if err != nil {
		return nil, apiError(err)
	}
	counts, err := r.countStages(ctx, &one)
	return counts, apiError(err)
}

func (r *Runner) countStages(ctx context.Context, one *row) (map[weir.Stage]int, error) {
	var mu sync.Mutex
	counts := map[weir.Stage]int{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)

	for _, first := range one.progress.Windows {
		group.Go(panics.Guard(func() error {
			ids, err := r.readIDs(ctx, one.batch.ID, first)
			if err != nil {
				return err
			}

			stages, err := r.readStages(ctx, ids)
			mu.Lock()
			defer mu.Unlock()
			for _, stage := range stages {
				counts[stage]++
			}

			return err
		}))
	}

	return counts, group.Wait()
}

// readIDs reads the message ids of a window; first is the number of the window's first part.
func (r *Runner) readIDs(ctx context.Context, id string, first int) ([]weir.ID, error) {
	text, err := r.Blobs.Get(ctx, idsName(id, first))
	if err != nil {
		return nil, err
	}

	var ids []weir.ID
	for line := range strings.Lines(string(text)) {
		_, public, _ := strings.Cut(strings.TrimSpace(line), " ")
		one, err := weir.ParseID(public)
		if err != nil {
			return nil, fmt.Errorf("batch %s: ids of window %d: %w", id, first, err)
		}
		ids = append(ids, one)
	}

	return ids, nil
}

type lanePlace struct{ epoch, lane int }

// readStages returns one stage for each id, in no particular order.
func (r *Runner) readStages(ctx context.Context, ids []weir.ID) (stages []weir.Stage, err error) {
	byLane := map[lanePlace][]weir.ID{}
	for _, id := range ids {
		place := lanePlace{id.Epoch, id.Lane}
		byLane[place] = append(byLane[place], id)
	}

	for place, ids := range byLane {
		found, err := r.readLane(ctx, place, ids)
		if err != nil {
			return nil, err
		}
		stages = append(stages, found...)
	}

	for range len(ids) - len(stages) {
		stages = append(stages, removedStage)
	}

	return stages, nil
}

// readLane returns the stages of those messages of a lane that still exist. If a message was
// scheduled or dead at the end of its epoch, readLane returns the stage of the copy in a later
// epoch. If there is no such copy, readLane leaves the message out.
func (r *Runner) readLane(ctx context.Context, place lanePlace, ids []weir.ID) (stages []weir.Stage,
	err error) {
	seqs := make([]int64, 0, len(ids))
	for _, id := range ids {
		seqs = append(seqs, id.Seq)
	}

	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	slices.Reverse(seqs)
	entries, _, err := r.Store.ForEpoch(epochs.Epoch{Number: place.epoch}).ReadMany(ctx,
		place.lane, seqs)
	if err != nil {
		return nil, err
	}

	for _, e := range entries {
		stage := e.Stage
		if place.epoch != r.Store.Epoch && (stage == weir.Scheduled || stage == weir.Dead) {
			st, err := r.Store.Messages().Status(ctx, e.Message.ID)
			switch {
			case weir.KindOf(err) == weir.NotFound:
				continue
			case err != nil:
				return nil, err
			}

			stage = st.Stage
		}

		stages = append(stages, stage)
	}

	return stages, nil
}
