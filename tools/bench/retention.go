package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/azure"
)

const (
	// retainedTarget is the number of messages per second that retention must remove in all lanes
	// together. Eight lanes with 200 new messages per second each need this rate. Azurite may be
	// too slow for this rate, so a rate of retainedShare times the baseline (see
	// measureBareDeletes) is also enough. The share is less than 1, because the handler also has to
	// read the messages.
	retainedTarget, retainedShare = 1600.0, 0.5
	retentionLimit                = 5 * time.Minute
	retentionPause                = 100 * time.Millisecond
)

// runRetention fills lanes with messages past their retention time and starts a handler. It
// measures how fast the handler removes the messages, and counts the handler's table requests per
// message. The baseline of the rate comes from measureBareDeletes.
func runRetention(ctx context.Context, b *bench) ([]result, error) {
	lanes, each := b.sizes.crowds.retention.lanes, b.sizes.crowds.retention.each
	r, err := b.newRig(ctx, rigOptions{lanes: lanes, withoutHost: true})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	if err := fillAged(ctx, r, oldMessages(lanes, each)); err != nil {
		return nil, err
	}

	started := time.Now()
	if err := r.startHost(); err != nil {
		return nil, err
	}

	if err := r.awaitCondition(ctx, retentionLimit, "the first message is removed",
		func() bool { return isAnyRemoved(ctx, r) }); err != nil {
		return nil, err
	}

	began := time.Now()
	left, err := awaitRemoved(ctx, r, each)
	if err != nil {
		return nil, err
	}

	took := time.Since(began)
	used, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	maps.DeleteFunc(used, func(name string, _ float64) bool {
		return !strings.HasPrefix(name, "table ") || strings.HasSuffix(name, " create")
	})
	bare, err := measureBareDeletes(ctx, r, lanes, each)
	if err != nil {
		return nil, err
	}

	n := lanes*each - left
	rate := float64(n) / took.Seconds()

	return []result{
		newRow(fmt.Sprintf("retention over %d lanes: messages removed a second", lanes), "/s", rate).withBaseline(bare).
			setVerdict(rate >= retainedTarget || rate >= retainedShare*bare, retainedTarget,
				"value >= %g or ratio >= %g", retainedTarget, retainedShare).
			withNote("%d of %d in %.1f s, two rows each and those of their commits, the first %.1f s after the "+
				"handler's start; the yardstick is bare deletions of two rows a message",
				n, lanes*each, took.Seconds(), began.Sub(started).Seconds()),
		newRow("retention: transactions per message", "", sumCounts(used)/float64(max(n, 1))).limitValue(0.05).
			withNote("all of the table's since the handler's start: %s",
				describeShares(used, max(n, 1))),
	}, nil
}

// oldMessages returns perLane messages for each lane, each with a key of its own.
func oldMessages(lanes, perLane int) []message {
	var all []message
	for _, path := range pathsByLane("old", lanes, perLane) {
		all = append(all, message{path, 1})
	}
	return all
}

// awaitRemoved waits until the last message of each lane is gone, or until retentionLimit has
// passed. It returns the number of messages that are left in all lanes.
func awaitRemoved(ctx context.Context, r *rig, each int) (left int, err error) {
	limited, cancel := context.WithTimeout(ctx, retentionLimit)
	defer cancel()

	for number := range r.lanes {
		for {
			isGone, err := isRemoved(ctx, r, number, each)
			if err != nil {
				return 0, err
			}
			if isGone {
				break
			}
			if !sleepFor(limited, retentionPause) {
				return countMessages(ctx, r)
			}
		}
	}

	return countMessages(ctx, r)
}

func isAnyRemoved(ctx context.Context, r *rig) bool {
	for number := range r.lanes {
		if isGone, err := isRemoved(ctx, r, number, 1); err == nil && isGone {
			return true
		}
	}
	return false
}

func isRemoved(ctx context.Context, r *rig, number, seq int) (bool, error) {
	_, err := r.account.Table().Get(ctx, lanePartition(r, number), "m_"+lane.OrderPos(int64(seq)))
	if storage.Is(err, storage.NotFound) {
		return true, nil
	}
	return false, err
}

func countMessages(ctx context.Context, r *rig) (n int, err error) {
	for number := range r.lanes {
		q := storage.Query{Partition: lanePartition(r, number), From: "m_", To: "m`",
			Columns: []string{"Stage"}}
		for more := true; more; {
			page, err := r.account.Table().Range(ctx, q)
			if err != nil {
				return n, err
			}

			n, more = n+len(page.Rows), page.More
			if more {
				q.From, q.After = "", page.Rows[len(page.Rows)-1].Key
			}
		}
	}

	return n, nil
}

func lanePartition(r *rig, number int) string { return fmt.Sprintf("%d.%d", r.store.Epoch, number) }

// measureBareDeletes returns the baseline in messages per second. It deletes two rows for each
// message, in transactions of the largest size. Each partition has one transaction at a time.
func measureBareDeletes(ctx context.Context, r *rig, partitions, each int) (float64, error) {
	account, err := azure.Open(azure.Config{ConnectionString: r.yardstickStorage(),
		Prefix: r.prefix + "gone"})
	if err != nil {
		return 0, err
	}
	defer account.Close()
	if err := account.Ensure(ctx); err != nil {
		return 0, err
	}

	rows := 2 * each
	run := func(kind storage.OpKind) error {
		group, ctx := errgroup.WithContext(ctx)
		for n := range partitions {
			group.Go(func() error { return changeRows(ctx, account.Table(), fmt.Sprint(n), kind, rows) })
		}
		return group.Wait()
	}
	if err := run(storage.Insert); err != nil {
		return 0, err
	}

	began := time.Now()
	err = run(storage.Delete)

	return float64(partitions*each) / time.Since(began).Seconds(), err
}

func changeRows(ctx context.Context, table storage.Table, partition string, kind storage.OpKind,
	rows int) error {
	for from := 0; from < rows; from += storage.MaxOps {
		var ops []storage.Op
		for i := from; i < min(from+storage.MaxOps, rows); i++ {
			op := storage.Op{Kind: kind, Key: lane.OrderPos(int64(i))}
			if kind == storage.Insert {
				op.Values = map[string]any{"Body": []byte(message{"/gone", i}.articleBody())}
			}
			ops = append(ops, op)
		}

		if _, err := table.Transact(ctx, partition, ops); err != nil {
			return err
		}
	}

	return nil
}
