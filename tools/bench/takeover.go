package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"
)

const (
	takeoverLease = 15 * time.Second // the shortest
	takeoverLimit = 2 * time.Minute
	streamGap     = 50 * time.Millisecond
	uncommitted   = 64 // deliveries at most, which a crash may repeat
)

// takeover measures how long the CMS gets nothing when a lane's holder ends, by SIGKILL
// and in order, while another instance lives.
func takeover(ctx context.Context, b *bench) ([]result, error) {
	killed, err := b.changes(ctx, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("kill: %w", err)
	}
	stopped, err := b.changes(ctx, syscall.SIGTERM)
	if err != nil {
		return nil, fmt.Errorf("graceful stop: %w", err)
	}
	lease := takeoverLease.Seconds()
	return []result{
		measured("takeover after SIGKILL of the holder, worst", "s", slices.Max(killed)).against(lease).beyond(2).
			noted("%d times, at different ages of the lease: %.2f s", len(killed), killed),
		measured("takeover after a graceful stop, worst", "s", slices.Max(stopped)).atMost(1).noted("%d times: %.2f s", len(stopped), stopped),
	}, nil
}

// changes ends holders, each in a rig of its own, and gives the takeovers in s.
func (b *bench) changes(ctx context.Context, signal syscall.Signal) ([]float64, error) {
	var times []float64
	for n := range b.sizes.takeovers {
		// A lease is renewed at a third of its length: ages between are met.
		age := time.Duration(n) * takeoverLease / 3 / time.Duration(b.sizes.takeovers)
		d, err := b.change(ctx, signal, age)
		if err != nil {
			return nil, err
		}
		times = append(times, d.Seconds())
	}
	return times, nil
}

// change lets one instance take the lane, adds a second, ends the first, and gives the time
// to the CMS's first request under a higher fence. Messages come all the while, so that
// the first cannot let go of the lane before.
func (b *bench) change(ctx context.Context, signal syscall.Signal, age time.Duration) (time.Duration, error) {
	repeats := 1 // the request under way is cut off, and the CMS may finish it
	if signal == syscall.SIGKILL {
		repeats = uncommitted
	}
	r, err := b.newRig(ctx, setup{lease: takeoverLease, latency: cmsLatency})
	if err != nil {
		return 0, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return 0, err
	}
	f, first := r.newFlow(), r.host.Status().Instances[0]
	if err := f.streamUntil(ctx, at(first)+"/api/messages", func() bool { return r.cms.Stats().Writes > 0 }); err != nil {
		return 0, err
	}
	fence := r.lastFence()
	second, err := r.addInstance(ctx, f, at(first)+"/api/messages")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	both := func() bool { return time.Since(began) > 2*time.Second+age }
	if err := f.streamUntil(ctx, second, both); err != nil {
		return 0, err
	}
	if r.lastFence() != fence {
		return 0, errors.New("the lane changed hands before its holder was ended")
	}
	if err := syscall.Kill(first.PID, signal); err != nil {
		return 0, err
	}
	ended := time.Now()
	if err := f.streamUntil(ctx, second, func() bool { return r.lastFence() > fence }); err != nil {
		return 0, err
	}
	return r.firstAbove(fence).Sub(ended), f.endWith(ctx, repeats)
}

// addInstance scales out and gives the address of the new handler's function, while
// messages go on coming to the one there is.
func (r *rig) addInstance(ctx context.Context, f *flow, url string) (string, error) {
	resp, err := r.client.Post(r.host.URL()+"/admin/host/instances", "", nil)
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("add an instance: %s", resp.Status)
	}
	second := r.host.Status().Instances[1]
	err = f.streamUntil(ctx, url, func() bool { return get(ctx, r.client, at(second)+"/api/health", nil) == nil })
	return at(second) + "/api/messages", err
}

// streamUntil posts a message now and then until something holds.
func (f *flow) streamUntil(ctx context.Context, url string, holds func() bool) error {
	for began := time.Now(); !holds(); {
		if err := f.post(ctx, url); err != nil {
			return err
		}
		if !pause(ctx, streamGap) {
			return ctx.Err()
		}
		if time.Since(began) > takeoverLimit {
			return fmt.Errorf("not within %s", takeoverLimit)
		}
	}
	return nil
}

// lastFence is the highest the CMS has seen.
func (r *rig) lastFence() int64 {
	var fence int64
	for _, req := range r.cms.Requests() {
		fence = max(fence, req.Fence)
	}
	return fence
}

// firstAbove is when the first request under a higher fence began.
func (r *rig) firstAbove(fence int64) (at time.Time) {
	for _, req := range r.cms.Requests() {
		if req.Fence > fence && (at.IsZero() || req.StartedAt.Before(at)) {
			at = req.StartedAt
		}
	}
	return at
}
