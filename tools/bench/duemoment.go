package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// momentLatency is the CMS's: a crowd takes seconds, in which plain messages come by.
const momentLatency = 10 * time.Millisecond

// dueMoment files a crowd for one moment and posts plain messages beside: sending must begin at
// the moment, go on at the CMS's pace, and let the plain messages through.
func dueMoment(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, n := range b.sizes.crowds.moments {
		more, err := b.dueCrowd(ctx, n)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%d at one moment: %w", n, err)
		}
	}
	return rows, nil
}

func (b *bench) dueCrowd(ctx context.Context, n int) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: momentLatency})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	trips, err := r.trips(ctx, b.sizes.trips)
	if err != nil {
		return nil, err
	}
	a := appointments{}
	moment := time.Now().Add(b.sizes.crowds.momentLead).UTC().Truncate(time.Millisecond)
	for _, m := range messages("moment", n, n) {
		a[m] = moment
	}
	if err := r.book(ctx, a); err != nil {
		return nil, err
	}
	if !pause(ctx, time.Until(moment.Add(-2*besideGap))) {
		return nil, ctx.Err()
	}
	plain := r.postBeside(ctx)
	err = r.until(ctx, burstLimit, "all that was due is written", func() bool { return r.cms.Stats().Writes >= n })
	if err := errors.Join(err, plain.end()); err != nil {
		return nil, err
	}
	c, err := r.crowd(ctx, a, moment, plain)
	if err != nil {
		return nil, err
	}
	after, err := r.trips(ctx, b.sizes.trips) // clears the CMS's record
	if err != nil {
		return nil, err
	}
	trip := mean(append(trips, after...))
	name := func(what string) string { return fmt.Sprintf("%d due at one moment: %s", n, what) }
	return []result{
		measured(name("until the first is sent"), "ms", c.first).atMost(20).noted("the last after %.2f s", c.last.Seconds()),
		measured(name("writes a second"), "/s", c.pace).against(1000/trip).atLeast(0.95).noted("bare round trip %.2f ms; plain messages are counted, too", trip),
		measured(name("lag of plain messages, max"), "ms", slices.Max(c.lags)).atMost(1000).noted("one each %s, from the sending: %s", besideGap, spread(c.lags)),
	}, nil
}

// crowd is what became of many that were due at one moment.
type crowd struct {
	first float64       // ms from the moment
	last  time.Duration // from the moment
	pace  float64       // writes a second from the first to the last of them
	lags  []float64     // ms, of the plain messages
}

// crowd waits for rest and reads the CMS's record. A message before its moment is an error.
func (r *rig) crowd(ctx context.Context, a appointments, moment time.Time, plain *beside) (crowd, error) {
	var c crowd
	all := len(a) + plain.number
	if err := errors.Join(r.delivered(ctx, all), r.atRest(ctx, burstLimit), r.clean(all)); err != nil {
		return c, err
	}
	requests := within(r.cms.Requests(), time.Time{}, time.Now())
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
	c.first, c.last = ms(from.Sub(moment)), until.Sub(moment)
	c.pace = float64(len(within(requests, from, until))-1) / until.Sub(from).Seconds()
	c.lags = plain.lags(requests)
	return c, nil
}
