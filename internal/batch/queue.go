package batch

import (
	"context"
	"fmt"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// maxQueued is the largest number of unfinished batches of one upstream. Uploads that have
	// begun below it are taken. functions/batches limits them: an instance receives one at a time
	// of an upstream that the settings name, and four of senders without one; and one process takes
	// files. So n instances exceed maxQueued by n or 4 n. An exact bound would need a row of each
	// upstream that each of its posts changes.
	maxQueued = 100
	// queueRetry is the Retry-After of a refused batch.
	queueRetry = 30 * time.Second
)

// checkQueue returns a Limited error if the upstream already has maxQueued unfinished batches. A
// repeat of an earlier post is always admitted, because it adds no batch.
func (r *Runner) checkQueue(ctx context.Context, one *row) error {
	all, err := r.store.listWork(ctx)
	if err != nil {
		return err
	}

	queued := 0
	for _, other := range all {
		if other.upstream == one.batch.Upstream {
			queued++
		}
	}

	if queued < maxQueued {
		return nil
	}

	if one.progress.KeyRow != "" {
		_, err := r.store.readByKey(ctx, one.progress.KeyRow)
		if !storage.Is(err, storage.NotFound) {
			return err
		}
	}

	sender := "there are"
	if one.batch.Upstream != "" {
		sender = fmt.Sprintf("the upstream %s has", one.batch.Upstream)
	}

	message := fmt.Sprintf("%s %d batches that are not filed yet; send this one again when some of them are filed",
		sender, queued)

	return &weir.Error{Kind: weir.Limited, Op: "batch", Message: message, RetryAfter: queueRetry,
		Problems: []weir.Problem{{Rule: "queuedBatches", Message: message}}}
}
