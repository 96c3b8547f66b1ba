package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// runDueLane measures the lateness of scheduled messages in one lane, at several rates. The
// messages are due at random times.
func runDueLane(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, rate := range b.sizes.crowds.due.rates {
		more, err := measureDueRate(ctx, b, rate)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%d a second: %w", rate, err)
		}
	}

	return rows, nil
}

// measureDueRate measures the lateness at one rate, in messages per second.
func measureDueRate(ctx context.Context, b *bench, rate int) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: dueLatency})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	span := b.sizes.crowds.due.span
	a := spreadDueTimes("due", max(int(span.Seconds()*float64(rate)), 1),
		time.Now().Add(b.sizes.due.lead), span)
	if err := postDueMessages(ctx, r, a); err != nil {
		return nil, err
	}

	yardstick, err := startTimers(ctx, a)
	if err != nil {
		return nil, err
	}

	late, err1 := awaitDueMessages(ctx, r, a, time.Time{})
	bare, err2 := yardstick.awaitLateness(a)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	name := func(what string) string {
		return fmt.Sprintf("due, one lane, %d a second: lateness %s",
			rate, what)
	}

	return []result{
		newRow(name("p50"), "ms", median(late)).withBaseline(median(bare)).withNote(
			"%d messages within %s, none early; %s", len(late), span, describeSpread(late)),
		newRow(name("p95"), "ms", percentile(late, 0.95)).withBaseline(percentile(bare, 0.95)),
		newRow(name("p99"), "ms", percentile(late, 0.99)).withBaseline(percentile(bare, 0.99)).limitValue(20),
		newRow(name("max"), "ms", slices.Max(late)).withBaseline(slices.Max(bare)),
	}, nil
}
