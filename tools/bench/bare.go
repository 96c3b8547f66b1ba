package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// The yardstick of deliveries is a bare loop of posts to the CMS on one connection. It runs
// as a process of its own, this program again, because the handler does too: a client in
// the CMS's own process would be spared the switch between them.
const (
	bareCount = "WEIR_BENCH_BARE" // how many round trips; set = be that loop and nothing else
	bareURL   = "WEIR_BENCH_URL"
)

// beYardstick is a yardstick's process if this one was started for it, and says whether it was.
func beYardstick(ctx context.Context) (bool, error) {
	if was, err := beBare(ctx, os.Stdout); was {
		return true, err
	}
	return beTimers(ctx, os.Stdin)
}

// beBare makes the loop if this process was started for it, and says whether it was.
func beBare(ctx context.Context, out io.Writer) (bool, error) {
	n, err := strconv.Atoi(os.Getenv(bareCount))
	if err != nil {
		return false, nil
	}
	samples, err := bareTrips(ctx, os.Getenv(bareURL), n)
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(out).Encode(samples)
}

// bareTrips gives the round trips in ms. The first tenth, which warms up, is left out.
func bareTrips(ctx context.Context, url string, n int) ([]float64, error) {
	client := newClient()
	defer client.CloseIdleConnections()
	var samples []float64
	for i := range n + n/10 + 1 {
		began := time.Now()
		if err := post(ctx, client, url, message{"/bare", i + 1}); err != nil {
			return nil, err
		}
		if i > n/10 {
			samples = append(samples, ms(time.Since(began)))
		}
	}
	return samples, nil
}

// trips measures bare round trips to the CMS, in ms, and clears its record.
func (r *rig) trips(ctx context.Context, n int) ([]float64, error) {
	r.cms.Reset()
	defer r.cms.Reset()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), bareCount+"="+strconv.Itoa(n), bareURL+"="+r.cmsURL)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("bare round trips: %w", err)
	}
	var samples []float64
	return samples, json.Unmarshal(out, &samples)
}
