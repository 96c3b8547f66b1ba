package main

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"weir/internal/democms"
	"weir/internal/lane"
	"weir/internal/weir"
)

// fillInOrder appends messages directly to the lanes, without a handler. It appends a key's
// messages one after the other, and the messages of different keys concurrently, so that appends
// share transactions.
func fillInOrder(ctx context.Context, r *rig, all []message) error {
	return fillStore(ctx, r.store, all)
}

// fillStore does the same as fillInOrder, for any store.
func fillStore(ctx context.Context, store *lane.Store, all []message) error {
	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	byKey := map[string][]message{}
	for _, m := range all {
		byKey[m.path] = append(byKey[m.path], m)
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, share := range byKey {
		group.Go(func() error {
			for _, m := range share {
				_, err := appender.Append(ctx,
					weir.Message{Contract: "article", Key: m.path, Version: fmt.Sprint(m.version),
						ContentType: "application/xml", Body: []byte(m.articleBody())}, "")
				if err != nil {
					return err
				}
			}

			return nil
		})
	}

	return group.Wait()
}

// writeRate returns the writes per second at the CMS, without the first "skip" writes. In these
// first writes the system warms up.
func writeRate(requests []democms.Request, skip int) float64 {
	requests = requests[skip:]
	span := requests[len(requests)-1].EndedAt.Sub(requests[0].EndedAt)
	return float64(len(requests)-1) / span.Seconds()
}

// runFast measures the rate at which one lane delivers to a CMS that answers without delay. It
// measures two cases: the lane was filled before the handler started, and clients post the messages
// during the deliveries.
func runFast(ctx context.Context, b *bench) ([]result, error) {
	backlog := makeMessages("full", b.sizes.fast+b.sizes.load.warm, b.sizes.load.keys)
	r, err := b.newRig(ctx, rigOptions{beforeHost: func(ctx context.Context,
		r *rig) error {
		return fillInOrder(ctx, r, backlog)
	}})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	if err := r.awaitCleanDelivery(ctx, len(backlog)); err != nil {
		return nil, err
	}

	full := writeRate(r.cms.Requests(), b.sizes.load.warm)
	r.cms.Reset()
	bare, err := r.measureTrips(ctx, b.sizes.fast)
	if err != nil {
		return nil, err
	}

	trip := mean(bare)
	got, err := r.runBurst(ctx, makeMessages("live", b.sizes.fast, b.sizes.load.keys))
	if err != nil {
		return nil, err
	}

	return []result{
		newRow("fast CMS, deliveries per second", "/s", full).withBaseline(1000/trip).requireRatio(0.5).
			withNote("from a full lane of %d; bare round trip %.3f ms", b.sizes.fast, trip),
		newRow("fast CMS, deliveries per second in a live burst", "/s",
			float64(b.sizes.fast)/got.elapsed).withBaseline(1000/trip).
			withNote("all accepted after %.2f s: the rest of the time is the lane's", got.filed),
	}, nil
}
