package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	sweeps = 3
	// functionTimeout of host.json; the host kills a handler that exceeds this time
	sweepLimit = 5 * time.Minute
)

// runSweepLanes measures sweeps over many lanes that have messages past their retention time.
func runSweepLanes(ctx context.Context, b *bench) ([]result, error) {
	lanes, old := b.sizes.crowds.sweep.lanes, b.sizes.crowds.sweep.each
	r, err := b.newRig(ctx, rigOptions{lanes: lanes,
		beforeHost: func(ctx context.Context, r *rig) error {
			return fillAged(ctx, r, oldMessages(lanes, old))
		}})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	var times []float64
	for range sweeps {
		began := time.Now()
		if err := runSweep(ctx, r); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began).Seconds())
	}

	return []result{newRow(fmt.Sprintf("a sweep over %d lanes, longest of %d", lanes, sweeps), "s",
		slices.Max(times)).limitValue(10).
		withNote("one after the other, the first right after the start, %d old messages in each lane: %.2f s", old,
			times)}, nil
}

// runSweep calls functions/sweep as the host's timer does, and waits for the answer.
func runSweep(ctx context.Context, r *rig) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	const call = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"IsPastDue":false}},"Metadata":{}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		handlerURL(r.host.Status().Instances[0])+"/sweep", strings.NewReader(call))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", "application/json")

	// without r.client's time limit
	resp, err := (&http.Client{Transport: r.client.Transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("sweep: %s: %s", resp.Status, answer)
	}

	return err
}
