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
	everySpace = "/every/" // prefix of the paths in the schedules' messages
	// everyLimit is the longest wait until all plain messages are written, see runEverySecond.
	everyLimit = 5 * time.Minute
)

// runEverySecond measures a lane in which many schedules are due each second. Meanwhile plain
// messages are posted; a plain message has no due time. The results are the rate of writes, the
// longest time in which no request to the CMS begins, and the longest time from the post of a plain
// message to the start of its request at the CMS.
func runEverySecond(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: dueLatency})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n, span := b.sizes.crowds.schedules.count, b.sizes.crowds.schedules.span
	from := time.Now().Add(b.sizes.due.lead).Truncate(time.Second)
	until := from.Add(span)
	if err := putSchedules(ctx, r, n, from, until); err != nil {
		return nil, err
	}

	if !sleepFor(ctx, time.Until(from)) {
		return nil, ctx.Err()
	}

	plain := startPlainTraffic(ctx, r)
	sleepFor(ctx, time.Until(until))
	if err := plain.stopPosting(); err != nil {
		return nil, err
	}

	late := r.awaitCondition(ctx, everyLimit, "the plain messages are written",
		func() bool { return len(plain.deliveryLags(r.cms.Requests())) >= plain.number })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}

	requests := r.cms.Requests()
	written := 0
	for _, req := range requestsWithin(requests, from, until) {
		if strings.HasPrefix(req.Path, everySpace) {
			written++
		}
	}

	lags := plain.deliveryLags(requests)
	if late != nil {
		// the wait of an undelivered message is at most this long
		lags = append(lags, milliseconds(time.Since(from)))
	}

	name := func(what string) string {
		return fmt.Sprintf("%d schedules of one second: %s", n, what)
	}

	return []result{
		newRow(name("occurrences written a second"), "/s", float64(written)/span.Seconds()).withBaseline(float64(n)).
			withNote("on one lane, one instance, in %s", span),
		newRow(name("longest standstill of the lane"), "s",
			longestStandstill(requests, from.Add(time.Second), until).Seconds()).limitValue(1),
		newRow(name("lag of plain messages, max"), "ms",
			slices.Max(lags)).limitValue(1000).withNote("one each %s, from its post: %s; %d posted",
			besideGap,
			describeSpread(lags), plain.number),
	}, nil
}

// putSchedules puts n schedules. Each schedule is due once a second from "from" to "until".
func putSchedules(ctx context.Context, r *rig, n int, from, until time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.sizes.load.clients)

	for i := range n {
		group.Go(func() error {
			return putSchedule(ctx, r, fmt.Sprint("every", i), fmt.Sprint(everySpace, i),
				from, until)
		})
	}

	return group.Wait()
}
