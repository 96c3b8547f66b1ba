package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	everySpace = "/every/"
	// everyLimit is how long the scenario waits for plain messages that do not come: their lag is
	// then at least that.
	everyLimit = 2 * time.Minute
)

// everySecond has one lane work off many schedules of one second each: writes must go on, and
// plain messages beside must come through.
func everySecond(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: dueLatency})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	n, span := b.sizes.crowds.schedules, b.sizes.crowds.schedulesSpan
	from := time.Now().Add(b.sizes.dueLead).Truncate(time.Second)
	until := from.Add(span)
	if err := r.putSchedules(ctx, n, from, until); err != nil {
		return nil, err
	}
	if !pause(ctx, time.Until(from)) {
		return nil, ctx.Err()
	}
	plain := r.postBeside(ctx)
	pause(ctx, time.Until(until))
	if err := plain.end(); err != nil {
		return nil, err
	}
	late := r.until(ctx, everyLimit, "the plain messages are written",
		func() bool { return len(plain.lags(r.cms.Requests())) >= plain.number })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	requests := r.cms.Requests()
	written := 0
	for _, req := range within(requests, from, until) {
		if strings.HasPrefix(req.Path, everySpace) {
			written++
		}
	}
	lags := plain.lags(requests)
	if late != nil {
		lags = append(lags, ms(time.Since(from))) // of the first that has not come, at least
	}
	name := func(what string) string { return fmt.Sprintf("%d schedules of one second: %s", n, what) }
	return []result{
		measured(name("occurrences written a second"), "/s", float64(written)/span.Seconds()).against(float64(n)).
			noted("on one lane, one instance, in %s", span),
		measured(name("longest standstill of the lane"), "s", standstill(requests, from.Add(time.Second), until).Seconds()).atMost(1),
		measured(name("lag of plain messages, max"), "ms", slices.Max(lags)).atMost(1000).noted("one each %s, from the sending: %s; %d posted", besideGap, spread(lags), plain.number),
	}, nil
}

func (r *rig) putSchedules(ctx context.Context, n int, from, until time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.sizes.clients)
	for i := range n {
		group.Go(func() error {
			return r.putSchedule(ctx, fmt.Sprint("every", i), fmt.Sprint(everySpace, i), from, until)
		})
	}
	return group.Wait()
}
