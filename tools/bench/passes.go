package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/tools/delay"
)

// readDelays reads the passes' delays.
func readDelays(text string) ([]time.Duration, error) {
	var delays []time.Duration
	for part := range strings.SplitSeq(text, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil || d < 0 {
			return nil, fmt.Errorf("storage delay %q: want a duration such as 10ms", part)
		}
		delays = append(delays, d)
	}
	return delays, nil
}

// runPasses runs the scenarios once for each delay. An error of one pass does not keep the
// others from running, except the end of ctx.
func (b *bench) runPasses(ctx context.Context, chosen []scenario, delays []time.Duration) error {
	var failed []error
	for i, d := range delays {
		isLast := i == len(delays)-1
		inPass := slices.DeleteFunc(slices.Clone(chosen), func(s scenario) bool { return s.when == last && !isLast })
		failed = append(failed, b.pass(ctx, d, inPass))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// pass runs scenarios with storage at one distance, which the rows' names show.
func (b *bench) pass(ctx context.Context, d time.Duration, chosen []scenario) error {
	comeBack, err := b.moveAway(ctx, d)
	if err != nil {
		return err
	}
	from := len(b.results)
	err = b.runAll(ctx, chosen)
	rows := b.results[from:]
	compare(rows)
	for i := range rows {
		rows[i] = rows[i].at(d)
	}
	return errors.Join(err, comeBack())
}

// moveAway puts the delay between storage and what is measured, until comeBack. Yardsticks see
// the same delay; they make single requests and could not bear a refusal.
func (b *bench) moveAway(ctx context.Context, d time.Duration) (comeBack func() error, err error) {
	if d == 0 {
		fmt.Fprintln(b.out, "Storage is Azurite itself.")
		return func() error { return nil }, nil
	}
	near, target := b.sizes, b.storage.ConnectionString()
	if b.far, err = delay.Start(ctx, distance(target, d)); err != nil {
		return nil, err
	}
	calm := distance(target, d)
	calm.BusyShare = 0
	if b.calm, err = delay.Start(ctx, calm); err != nil {
		return nil, errors.Join(err, b.far.Close())
	}
	b.delay, b.sizes = d, b.sizes.farther()
	fmt.Fprintf(b.out, "Storage answers %s later (median of a log-normal delay), and refuses %.1f %% of requests.\n",
		d, delay.BusyShare*100)
	return func() error {
		fmt.Fprintf(b.out, "Storage got %d requests through the delay and refused %d.\n", b.far.Requests(),
			b.far.Refused())
		err := errors.Join(b.far.Close(), b.calm.Close())
		b.delay, b.sizes, b.far, b.calm = 0, near, nil, nil
		return err
	}, nil
}

// distance is that of a storage account whose median answer is d later than Azurite's.
func distance(target string, d time.Duration) delay.Config {
	c := delay.Config{Target: target}
	if d > 0 {
		c = delay.Far(target)
		c.Median = d
	}
	return c
}

// measuredStorage is the account as handlers and hosts see it in this pass.
func (b *bench) measuredStorage() string {
	if b.far == nil {
		return b.storage.ConnectionString()
	}
	return b.far.ConnectionString(b.storage.ConnectionString())
}

// yardstickStorage is the account as yardsticks see it in this pass.
func (b *bench) yardstickStorage() string {
	if b.calm == nil {
		return b.storage.ConnectionString()
	}
	return b.calm.ConnectionString(b.storage.ConnectionString())
}
