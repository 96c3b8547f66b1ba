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
// the delay.
func (b *bench) runPass(ctx context.Context, d time.Duration, chosen []scenario) error {
	endDelay, err := b.delayStorage(ctx, d)
	if err != nil {
		return err
	}

	from := len(b.results)
	err = b.runScenarios(ctx, chosen)
	rows := b.results[from:]
	compareWithRecipe(rows)
	for i := range rows {
		rows[i] = rows[i].withDelay(d)
	}

	return errors.Join(err, endDelay())
}

// delayStorage starts proxies that delay the answers of storage, and replaces b.sizes by the sizes
// for delayed storage. The returned function ends the proxies and restores b.sizes. The proxy of
// the measured programs also refuses some requests. The proxy of the baseline programs refuses
// none, because these programs do not retry. A delay of 0 changes nothing.
func (b *bench) delayStorage(ctx context.Context, d time.Duration) (endDelay func() error,
	err error) {
	if d == 0 {
		fmt.Fprintln(b.out, "Storage is Azurite itself.")
		return func() error { return nil }, nil
	}

	near, target := b.sizes, b.storage.ConnectionString()
	if b.farStorage, err = delay.Start(ctx, storageDistance(target, d)); err != nil {
		return nil, err
	}

	calm := storageDistance(target, d)
	calm.BusyShare = 0
	if b.calmStorage, err = delay.Start(ctx, calm); err != nil {
		return nil, errors.Join(err, b.farStorage.Close())
	}

	b.delay, b.sizes = d, b.sizes.fartherSizes()
	fmt.Fprintf(b.out, "Storage answers %s later (median of a log-normal delay), and refuses %.1f %% of requests.\n",
		d, delay.BusyShare*100)

	return func() error {
		fmt.Fprintf(b.out, "Storage got %d requests through the delay and refused %d.\n",
			b.farStorage.Requests(), b.farStorage.Refused())
		err := errors.Join(b.farStorage.Close(), b.calmStorage.Close())
		b.delay, b.sizes, b.farStorage, b.calmStorage = 0, near, nil, nil
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
