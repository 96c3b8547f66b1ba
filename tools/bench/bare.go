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

// The baseline of deliveries is a loop of posts to the CMS on one connection. The loop runs in a
// process of its own, like the handler. In the CMS's process, the loop would be faster than the
// handler can be, because it would need no switches between processes. To run the loop, the bench
// starts its own program again, with these two environment variables.
const (
	// number of round trips; if it is set, this process runs only the loop
	bareCount = "WEIR_BENCH_BARE"
	bareURL   = "WEIR_BENCH_URL" // address of the CMS
)

// runAsYardstick runs a baseline program if the environment asks for one, and reports whether it
// ran one.
func runAsYardstick(ctx context.Context) (bool, error) {
	if was, err := runBareLoop(ctx, os.Stdout); was {
		return true, err
	}

	if was, err := runFloor(ctx, os.Stdin, os.Stdout); was {
		return true, err
	}

	if was, err := runRawProcess(ctx, os.Stdin, os.Stdout); was {
		return true, err
	}

	if was, err := runListenerProcess(ctx, os.Stdin, os.Stdout); was {
		return true, err
	}
	return runTimerProcess(ctx, os.Stdin)
}

// runBareLoop runs the loop of posts if the environment variable bareCount is set, and reports
// whether it ran. It prints the durations in ms as JSON.
func runBareLoop(ctx context.Context, out io.Writer) (bool, error) {
	n, err := strconv.Atoi(os.Getenv(bareCount))
	if err != nil {
		return false, nil
	}

	samples, err := measureBareTrips(ctx, os.Getenv(bareURL), n)
	if err != nil {
		return true, err
	}

	return true, json.NewEncoder(out).Encode(samples)
}

// measureBareTrips returns the durations of n posts in ms. Before these posts it makes n/10+1 posts
// that do not count. They open the connection and warm the CMS up.
func measureBareTrips(ctx context.Context, url string, n int) ([]float64, error) {
	client := newClient()
	defer client.CloseIdleConnections()
	var samples []float64
	for i := range n + n/10 + 1 {
		began := time.Now()
		if err := postMessage(ctx, client, url, message{"/bare", i + 1}); err != nil {
			return nil, err
		}

		if i > n/10 {
			samples = append(samples, milliseconds(time.Since(began)))
		}
	}

	return samples, nil
}

// measureTrips starts a process that calls measureBareTrips with the CMS's address. It returns the
// n durations in ms. The CMS's record is cleared before and after these posts.
func (r *rig) measureTrips(ctx context.Context, n int) ([]float64, error) {
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
