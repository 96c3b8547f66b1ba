package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// momentLatency is the latency of the CMS. It makes the delivery of the due messages take seconds,
// so that plain messages come during the delivery.
const momentLatency = 10 * time.Millisecond

// runDueMoment posts many messages with the same due time. From shortly before the due time it also
// posts plain messages, which have no due time. The holder must begin at the due time, send as fast
// as the CMS answers, and send each plain message soon after its post.
func runDueMoment(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, n := range b.sizes.crowds.moment.messages {
		more, err := measureDueCrowd(ctx, b, n)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%d at one moment: %w", n, err)
		}
	}

	return rows, nil
}

// measureDueCrowd does the measurements of runDueMoment with n messages that have the same due
// time.
func measureDueCrowd(ctx context.Context, b *bench, n int) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: momentLatency})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	trips, err := r.measureTrips(ctx, b.sizes.load.trips)
	if err != nil {
		return nil, err
	}

	a := dueTimes{}
	moment := time.Now().Add(b.sizes.crowds.moment.lead).UTC().Truncate(time.Millisecond)
	for _, m := range makeMessages("moment", n, n) {
		a[m] = moment
	}

	if err := postDueMessages(ctx, r, a); err != nil {
		return nil, err
	}

	if !sleepFor(ctx, time.Until(moment.Add(-2*besideGap))) {
		return nil, ctx.Err()
	}

	plain := startPlainTraffic(ctx, r)
	err = r.awaitCondition(ctx, burstLimit, "the CMS has as many writes as messages are due",
		func() bool { return r.cms.Stats().Writes >= n })
	if err := errors.Join(err, plain.stopPosting()); err != nil {
		return nil, err
	}

	c, err := awaitCrowd(ctx, r, a, moment, plain)
	if err != nil {
		return nil, err
	}

	after, err := r.measureTrips(ctx, b.sizes.load.trips) // clears the CMS's record
	if err != nil {
		return nil, err
	}

	trip := mean(append(trips, after...))
	name := func(what string) string { return fmt.Sprintf("%d due at one moment: %s", n, what) }

	return []result{
		newRow(name("until the first is sent"), "ms", c.first).limitValue(20).withNote(
			"the last after %.2f s", c.last.Seconds()),
		newRow(name("writes a second"), "/s",
			c.pace).withBaseline(1000/trip).requireRatio(0.95).withNote(
			"bare round trip %.2f ms; plain messages are counted, too", trip),
		newRow(name("lag of plain messages, max"), "ms",
			slices.Max(c.lags)).limitValue(1000).withNote("one each %s, from the sending: %s",
			besideGap,
			describeSpread(c.lags)),
	}, nil
}

type crowdFigures struct {
	// time in ms from the due time to the start of the first request for a due message
	first float64
	last  time.Duration // time from the due time to the start of the last request for a due message
	// writes per second from the first due message to the last one, plain messages included
	pace float64
	// times in ms from the post of a plain message to the start of its request at the CMS
	lags []float64
}

// awaitCrowd waits until the lane is idle, checks the CMS's record, and computes the figures. A
// request before its message's due time is an error.
func awaitCrowd(ctx context.Context, r *rig, a dueTimes, moment time.Time,
	plain *plainTraffic) (crowdFigures, error) {
	var c crowdFigures
	all := len(a) + plain.number
	if err := r.awaitCleanDelivery(ctx, all); err != nil {
		return c, err
	}

	requests := requestsWithin(r.cms.Requests(), time.Time{}, time.Now())
	var from, until time.Time
	for _, req := range requests {
		if due, ok := a[message{req.Path, req.Version}]; ok {
			if req.StartedAt.Before(due) {
				return c, fmt.Errorf("%s came %s early", req.Path, due.Sub(req.StartedAt))
			}

			if from.IsZero() {
				from = req.StartedAt
			}

			until = req.StartedAt
		}
	}

	c.first, c.last = milliseconds(from.Sub(moment)), until.Sub(moment)
	c.pace = float64(len(requestsWithin(requests, from, until))-1) / until.Sub(from).Seconds()
	c.lags = plain.deliveryLags(requests)

	return c, nil
}
