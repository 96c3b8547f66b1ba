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

// farAhead is when the scheduled messages are due that are only there to be in the way.
const farAhead = 365 * 24 * time.Hour

// scheduled compares a lane that holds many scheduled messages with one that holds none:
// what its other messages cost must not grow.
func scheduled(ctx context.Context, b *bench) ([]result, error) {
	var beside []result
	if b.delay == 0 { // storage in memory is nowhere else
		var err error
		if beside, err = besideScheduled(ctx, b.sizes); err != nil {
			return nil, err
		}
	}
	none, err := b.drainBeside(ctx, 0)
	if err != nil {
		return beside, err
	}
	many, err := b.drainBeside(ctx, b.sizes.scheduled)
	if err != nil {
		return beside, err
	}
	n := b.sizes.burst
	return append(beside,
		measured("scheduled: transactions per other message", "", total(many)/float64(n)).against(total(none)/float64(n)).ratioAtMost(1.1).
			noted("a burst of %d messages beside %d scheduled ones, on Azurite: %s; beside none: %s", n, b.sizes.scheduled, shares(many, n), shares(none, n))), nil
}

// drainBeside gives the transactions of a burst in a lane that has scheduled messages.
func (b *bench) drainBeside(ctx context.Context, waiting int) (map[string]float64, error) {
	r, err := b.newRig(ctx, setup{latency: cmsLatency, filled: func(ctx context.Context, r *rig) error { return fillScheduled(ctx, r.store, waiting) }})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.released(ctx); err != nil {
		return nil, err
	}
	used, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	n := b.sizes.burst
	if err := r.send(ctx, messages("beside", n, b.sizes.keys), b.sizes.clients, r.receive()); err != nil {
		return nil, err
	}
	if err := r.delivered(ctx, n); err != nil {
		return nil, err
	}
	if err := r.released(ctx); err != nil {
		return nil, err
	}
	if err := r.clean(n); err != nil {
		return nil, err
	}
	after, err := r.transactions(ctx)
	return minus(after, used), err
}

// fillScheduled files messages that are due at moments far ahead, many in a transaction.
func fillScheduled(ctx context.Context, store *lane.Store, n int) error {
	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	from := time.Now().Add(farAhead)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(200)
	for i, m := range messages("scheduled", n, fullSizes.keys) {
		group.Go(func() error {
			_, err := appender.Append(ctx, weir.Message{Contract: "article", Key: m.path, Version: fmt.Sprint(m.version), DueAt: from.Add(time.Duration(i) * time.Second),
				ContentType: "application/xml", Body: []byte(m.body())}, "")
			return err
		})
	}
	return group.Wait()
}

// besideScheduled compares the time per message on memory storage, in this process. Rounds
// with and without scheduled messages take turns, and those are in memory all the while:
// what their rows cost the collector is not the engine's.
func besideScheduled(ctx context.Context, sizes sizes) ([]result, error) {
	many, err := newFull(ctx, 0)
	if err != nil {
		return nil, err
	}
	if err := fillScheduled(ctx, many.store, sizes.scheduledMemory); err != nil {
		return nil, err
	}
	passed := time.Now()
	if _, err := many.round(ctx, "first", sizes); err != nil { // the cursor passes over what is scheduled
		return nil, err
	}
	spent := time.Since(passed)
	none, err := newFull(ctx, 0)
	if err != nil {
		return nil, err
	}
	if _, err := none.round(ctx, "first", sizes); err != nil {
		return nil, err
	}
	var with, without []float64
	turns := []turn{{none, &without}, {many, &with}}
	for i := range sizes.scheduledRounds {
		slices.Reverse(turns) // neither is always the one that comes after the other
		for _, t := range turns {
			v, err := t.full.round(ctx, fmt.Sprint(i), sizes)
			if err != nil {
				return nil, err
			}
			*t.times = append(*t.times, v)
		}
	}
	runtime.KeepAlive(many)
	return []result{measured("scheduled: time per other message on memory storage", "µs", median(with)).against(median(without)).ratioAtMost(1.1).
		noted("median of %d rounds of %d messages filed and drained beside %d scheduled ones, and of as many beside none, in turn, the CMS answering at once; the first round, which passed over the scheduled ones in the log, took %.2f s",
			len(with), sizes.scheduledBurst, sizes.scheduledMemory, spent.Seconds())}, nil
}

// turn is one of two lanes that are measured by turns, and its times.
type turn struct {
	full  *full
	times *[]float64
}

// round files messages, drains them, and gives the µs per message of both.
func (f *full) round(ctx context.Context, space string, sizes sizes) (float64, error) {
	began := time.Now()
	if err := fillStore(ctx, f.store, messages(space, sizes.scheduledBurst, fullSizes.keys)); err != nil {
		return 0, err
	}
	filing := time.Since(began)
	f.n = sizes.scheduledBurst
	draining, err := f.drain(ctx)
	return draining + float64(filing.Microseconds())/float64(f.n), err
}
