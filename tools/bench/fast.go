package main

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/weir"
	"weir/tools/democms/server"
)

// fill files messages without a handler, straight into the lanes: each key's in order, all
// keys at once, so that a transaction takes as many as it holds.
func (r *rig) fill(ctx context.Context, all []message) error { return fillStore(ctx, r.store, all) }

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
				_, err := appender.Append(ctx, weir.Message{Contract: "article", Key: m.path, Version: fmt.Sprint(m.version),
					ContentType: "application/xml", Body: []byte(m.body())}, "")
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// rate gives writes per second at the CMS, without the first few: they warm up.
func rate(requests []server.Request, skip int) float64 {
	requests = requests[skip:]
	span := requests[len(requests)-1].EndedAt.Sub(requests[0].EndedAt)
	return float64(len(requests)-1) / span.Seconds()
}

// fast measures what one lane delivers when the CMS takes no time: once from a lane that
// was full before, once while messages are being accepted.
func fast(ctx context.Context, b *bench) ([]result, error) {
	backlog := messages("full", b.sizes.fast+b.sizes.warm, b.sizes.keys)
	r, err := b.newRig(ctx, setup{filled: func(ctx context.Context, r *rig) error { return r.fill(ctx, backlog) }})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.delivered(ctx, len(backlog)); err != nil {
		return nil, err
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return nil, err
	}
	if err := r.clean(len(backlog)); err != nil {
		return nil, err
	}
	full := rate(r.cms.Requests(), b.sizes.warm)
	r.cms.Reset()
	bare, err := r.trips(ctx, b.sizes.fast)
	if err != nil {
		return nil, err
	}
	trip := mean(bare)
	got, err := r.burst(ctx, messages("live", b.sizes.fast, b.sizes.keys))
	if err != nil {
		return nil, err
	}
	return []result{
		measured("fast CMS, deliveries per second", "/s", full).against(1000/trip).atLeast(0.5).
			noted("from a full lane of %d; bare round trip %.3f ms", b.sizes.fast, trip),
		measured("fast CMS, deliveries per second in a live burst", "/s", float64(b.sizes.fast)/got.elapsed).against(1000/trip).
			noted("all accepted after %.2f s: what is beyond that is the lane's", got.filed),
	}, nil
}
