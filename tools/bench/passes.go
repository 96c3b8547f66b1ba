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

// readDelays parses delays with commas between them.
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

// runPasses makes a pass over the scenarios for each delay. Scenarios with the rule inLastPass run
// in the last pass only. After a failed pass the next pass runs. If ctx ends, no further pass runs.
func (b *bench) runPasses(ctx context.Context, chosen []scenario, delays []time.Duration) error {
	var failed []error
	for i, d := range delays {
		isLast := i == len(delays)-1
		inPass := slices.DeleteFunc(slices.Clone(chosen),
			func(s scenario) bool { return s.when == inLastPass && !isLast })
		failed = append(failed, b.runPass(ctx, d, inPass))
		if ctx.Err() != nil {
			break
		}
	}

	return errors.Join(failed...)
}

// runPass runs scenarios with one delay of storage. If the delay is not 0, the rows' names contain
// the delay, and the scenarios have the sizes for delayed storage.
func (b *bench) runPass(ctx context.Context, d time.Duration, chosen []scenario) error {
	near, from := b.sizes, len(b.results)
	b.delay = d
	if d == 0 {
		fmt.Fprintln(b.out, "Storage is Azurite itself.")
	} else {
		b.sizes = b.sizes.fartherSizes()
		fmt.Fprintf(b.out, "Storage answers %s later (median of a log-normal delay), and refuses "+
			"%.1f %% of requests.\n", d, delay.BusyShare*100)
	}

	err := b.runScenarios(ctx, chosen)
	b.delay, b.sizes = 0, near
	rows := b.results[from:]
	compareWithRecipe(rows)
	for i := range rows {
		rows[i] = rows[i].withDelay(d)
	}

	return err
}

// delayStorage starts proxies that delay the answers of storage. The returned function ends the
// proxies. The proxy of the measured programs also refuses some requests. The proxy of the baseline
// programs refuses none, because these programs do not retry. In a pass without a delay
// delayStorage changes nothing.
func (b *bench) delayStorage(ctx context.Context) (endDelay func() error, err error) {
	if b.delay == 0 {
		return func() error { return nil }, nil
	}

	target := b.storage.ConnectionString()
	if b.farStorage, err = delay.Start(ctx, storageDistance(target, b.delay)); err != nil {
		return nil, err
	}

	calm := storageDistance(target, b.delay)
	calm.BusyShare = 0
	if b.calmStorage, err = delay.Start(ctx, calm); err != nil {
		return nil, errors.Join(err, b.farStorage.Close())
	}

	return func() error {
		fmt.Fprintf(b.out, "            storage got %d requests through the delay and refused %d\n",
			b.farStorage.Requests(), b.farStorage.Refused())
		err := errors.Join(b.farStorage.Close(), b.calmStorage.Close())
		b.farStorage, b.calmStorage = nil, nil

		return err
	}, nil
}

// storageDistance returns the settings of a proxy in front of "target". The proxy delays answers,
// and refuses some requests as a busy storage account does. The median of the delays is d. If d is
// 0, the proxy only forwards.
func storageDistance(target string, d time.Duration) delay.Config {
	c := delay.Config{Target: target}
	if d > 0 {
		c = delay.Far(target)
		c.Median = d
	}
	return c
}

// measuredStorage returns the connection string that handlers and hosts use in this pass.
func (b *bench) measuredStorage() string {
	if b.farStorage == nil {
		return b.storage.ConnectionString()
	}
	return b.farStorage.ConnectionString(b.storage.ConnectionString())
}

// yardstickStorage returns the connection string that baselines use in this pass.
func (b *bench) yardstickStorage() string {
	if b.calmStorage == nil {
		return b.storage.ConnectionString()
	}
	return b.calmStorage.ConnectionString(b.storage.ConnectionString())
}
