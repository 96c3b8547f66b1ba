package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// dueLane measures how late messages come that are due in one lane, so many a second at random
// moments: all that is done for them (releases, commits) shares the lane's one sender.
func dueLane(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, rate := range b.sizes.crowds.dueRates {
		more, err := b.dueRate(ctx, rate)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%d a second: %w", rate, err)
		}
	}
	return rows, nil
}

func (b *bench) dueRate(ctx context.Context, rate int) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: dueLatency})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	span := b.sizes.crowds.dueSpan
	a := appoint("due", max(int(span.Seconds()*float64(rate)), 1), time.Now().Add(b.sizes.dueLead), span)
	if err := r.book(ctx, a); err != nil {
		return nil, err
	}
	yardstick, err := startTimers(ctx, a)
	if err != nil {
		return nil, err
	}
	late, err1 := r.met(ctx, a, time.Time{})
	bare, err2 := yardstick.end(a)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	name := func(what string) string { return fmt.Sprintf("due, one lane, %d a second: lateness %s", rate, what) }
	return []result{
		measured(name("p50"), "ms", median(late)).against(median(bare)).noted("%d messages within %s, none early; %s", len(late), span, spread(late)),
		measured(name("p95"), "ms", percentile(late, 0.95)).against(percentile(bare, 0.95)),
		measured(name("p99"), "ms", percentile(late, 0.99)).against(percentile(bare, 0.99)).atMost(20),
		measured(name("max"), "ms", slices.Max(late)).against(slices.Max(bare)),
	}, nil
}
