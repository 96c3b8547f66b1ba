package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/weir"
)

// farAhead is the time until the first scheduled message is due. So no scheduled message becomes
// due during the run.
const farAhead = 365 * 24 * time.Hour

// runScheduled compares a lane with many scheduled messages and a lane without scheduled messages.
// Other messages must not cost more in the first lane.
func runScheduled(ctx context.Context, b *bench) ([]result, error) {
	var beside []result
	if b.delay == 0 { // the measurement on memory storage belongs to the pass without a delay
		var err error
		if beside, err = measureBesideScheduled(ctx, b.sizes); err != nil {
			return nil, err
		}
	}

	none, err := drainBesideScheduled(ctx, b, 0)
	if err != nil {
		return beside, err
	}

	many, err := drainBesideScheduled(ctx, b, b.sizes.scheduled.messages)
	if err != nil {
		return beside, err
	}

	n := b.sizes.load.burst

	return append(beside,
			newRow("scheduled: transactions per other message", "",
				sumCounts(many)/float64(
					n)).withBaseline(sumCounts(none)/float64(n)).limitRatio(1.1).
				withNote("a burst of %d messages beside %d scheduled ones, on Azurite: %s; beside none: %s",
					n, b.sizes.scheduled.messages, describeShares(many, n),
					describeShares(none, n))),
		nil
}

// drainBesideScheduled counts the storage requests of a burst, in a lane with the given number of
// scheduled messages.
func drainBesideScheduled(ctx context.Context, b *bench,
	scheduled int) (map[string]float64, error) {
	r, err := b.newRig(ctx, rigOptions{latency: cmsLatency,
		beforeHost: func(ctx context.Context, r *rig) error {
			return fillScheduled(ctx, r.store,
				scheduled)
		}})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	if err := awaitReleased(ctx, r); err != nil {
		return nil, err
	}

	used, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	n := b.sizes.load.burst
	if err := r.sendMessages(ctx, makeMessages("beside", n, b.sizes.load.keys),
		b.sizes.load.clients, r.receiveURL()); err != nil {
		return nil, err
	}

	if err := r.awaitDelivered(ctx, n); err != nil {
		return nil, err
	}

	if err := awaitReleased(ctx, r); err != nil {
		return nil, err
	}

	if err := r.checkRecord(n); err != nil {
		return nil, err
	}

	after, err := r.readTransactions(ctx)

	return subtractCounts(after, used), err
}

// fillScheduled appends n messages. The first message is due after farAhead, and each next one a
// second later.
func fillScheduled(ctx context.Context, store *lane.Store, n int) error {
	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	from := time.Now().Add(farAhead)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(200)

	for i, m := range makeMessages("scheduled", n, fullSizes.load.keys) {
		group.Go(func() error {
			_, err := appender.Append(ctx,
				weir.Message{Contract: "article", Key: m.path, Version: fmt.Sprint(m.version),
					DueAt:       from.Add(time.Duration(i) * time.Second),
					ContentType: "application/xml", Body: []byte(m.articleBody())}, "")
			return err
		})
	}

	return group.Wait()
}

// measureBesideScheduled compares the time per message in a lane with scheduled messages and in a
// lane without them, on memory storage in this process. The two lanes take turns. Both lanes stay
// in memory in all turns, so that Go's garbage collector has the same work in each turn.
func measureBesideScheduled(ctx context.Context, sizes sizes) ([]result, error) {
	many, err := newMemoryLane(ctx, 0)
	if err != nil {
		return nil, err
	}

	if err := fillScheduled(ctx, many.store, sizes.scheduled.inMemory); err != nil {
		return nil, err
	}

	passed := time.Now()

	// moves the cursor past the scheduled messages
	if _, err := many.runRound(ctx, "first", sizes); err != nil {
		return nil, err
	}

	spent := time.Since(passed)
	none, err := newMemoryLane(ctx, 0)
	if err != nil {
		return nil, err
	}

	if _, err := none.runRound(ctx, "first", sizes); err != nil {
		return nil, err
	}

	var with, without []float64
	turns := []laneTurn{{none, &without}, {many, &with}}
	for i := range sizes.scheduled.rounds {
		slices.Reverse(turns) // each lane is the first one in half of the rounds
		for _, t := range turns {
			v, err := t.lane.runRound(ctx, fmt.Sprint(i), sizes)
			if err != nil {
				return nil, err
			}
			*t.times = append(*t.times, v)
		}
	}

	runtime.KeepAlive(many)

	return []result{newRow("scheduled: time per other message on memory storage", "µs",
		median(with)).withBaseline(median(without)).limitRatio(1.1).
		withNote("median of %d rounds of %d messages filed and drained beside %d scheduled ones, and of as many "+
			"beside none, in turn, the CMS answering at once; the first round, which passed over the scheduled ones "+
			"in the log, took %.2f s",
			len(with), sizes.scheduled.burst, sizes.scheduled.inMemory, spent.Seconds())}, nil
}

type laneTurn struct {
	lane  *memoryLane
	times *[]float64 // µs per message, one value for each round
}

// runRound appends messages and drains the lane. It returns the time of both together, in µs per
// message.
func (f *memoryLane) runRound(ctx context.Context, space string, sizes sizes) (float64, error) {
	began := time.Now()
	if err := fillStore(ctx, f.store, makeMessages(space, sizes.scheduled.burst, fullSizes.load.keys)); err != nil {
		return 0, err
	}

	filing := time.Since(began)
	f.n = sizes.scheduled.burst
	draining, err := f.drainLane(ctx)

	return draining + float64(filing.Microseconds())/float64(f.n), err
}
