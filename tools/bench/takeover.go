package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"

	"weir/tools/funchost/host"
)

const (
	takeoverLease = 15 * time.Second // the shortest lease that the settings allow
	defaultLease  = 30 * time.Second
	takeoverLimit = 5 * time.Minute
	streamGap     = 50 * time.Millisecond // pause between two posts of streamUntil
	uncommitted   = 64                    // a crash repeats at most this number of deliveries
)

// runTakeover ends a lane's holder by SIGKILL and by SIGTERM while another instance runs. It
// measures the time from the signal to the first request of the next holder. With the default lease
// it kills one holder, and beside it the listener of the queue listener's stand-in.
func runTakeover(ctx context.Context, b *bench) ([]result, error) {
	killed, err := measureTakeovers(ctx, b, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("kill: %w", err)
	}

	stopped, err := measureTakeovers(ctx, b, syscall.SIGTERM)
	if err != nil {
		return nil, fmt.Errorf("graceful stop: %w", err)
	}

	byDefault, err := measureTakeover(ctx, b, syscall.SIGKILL, defaultLease, 0)
	if err != nil {
		return nil, fmt.Errorf("kill with the default lease: %w", err)
	}

	listener, err := measureListenerKill(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("kill of the listener stand-in: %w", err)
	}

	lease := takeoverLease.Seconds()

	return []result{
		newRow("takeover after SIGKILL of the holder, worst", "s",
			slices.Max(killed)).withBaseline(lease).limitDistance(2).
			withNote("%d times, at different ages of the lease: %.2f s", len(killed), killed),
		newRow("takeover after a graceful stop, worst", "s",
			slices.Max(stopped)).limitValue(1).withNote("%d times: %.2f s", len(stopped), stopped),
		newRow("takeover after SIGKILL, default lease: until the next write", "s",
			byDefault.Seconds()).withBaseline(listener.Seconds()).
			withNote("once, with a lease of %s; the yardstick is the listener stand-in, with a "+
				"lease of %s and no settle time: its message under way comes back after %s",
				defaultLease, listenerLease, listenerHide),
	}, nil
}

// measureListenerKill kills the listener of the stand-in while messages come. It returns the time
// from the kill to the next request at the CMS. The message that the killed listener had got stays
// hidden for listenerHide, so measureListenerKill does not wait for it.
func measureListenerKill(ctx context.Context, b *bench) (time.Duration, error) {
	p, err := b.startListeners(ctx, rigOptions{latency: cmsLatency})
	if err != nil {
		return 0, err
	}
	defer p.stop()
	if err := p.warmPair(ctx); err != nil {
		return 0, err
	}

	f, second, began := p.newFlow(), p.instances[1].url, time.Now()
	if err := f.streamUntil(ctx, second,
		func() bool { return time.Since(began) > 2*time.Second }); err != nil {
		return 0, err
	}

	if err := p.killListener(); err != nil {
		return 0, err
	}

	ended, before := time.Now(), p.cms.Stats().Writes
	if err := f.streamUntil(ctx, second,
		func() bool { return p.cms.Stats().Writes > before+1 }); err != nil {
		return 0, err
	}

	var next time.Time
	for _, q := range p.cms.Requests() {
		if q.StartedAt.After(ended) && (next.IsZero() || q.StartedAt.Before(next)) {
			next = q.StartedAt
		}
	}

	return next.Sub(ended), nil
}

// measureTakeovers measures takeovers, each in a rig of its own. It returns the duration of each
// takeover in s.
func measureTakeovers(ctx context.Context, b *bench, signal syscall.Signal) ([]float64, error) {
	var times []float64
	for n := range b.sizes.takeovers {
		// The holder renews its lease each time a third of the lease's length has passed. So the
		// times of the signals are spread over a third of the length.
		wait := time.Duration(n) * takeoverLease / 3 / time.Duration(b.sizes.takeovers)
		d, err := measureTakeover(ctx, b, signal, takeoverLease, wait)
		if err != nil {
			return nil, err
		}

		times = append(times, d.Seconds())
	}

	return times, nil
}

// measureTakeover lets one instance take the lane and adds a second instance. After 2 s and the
// time "wait", it sends the signal to the handler that holds the lane then: the lane moves if the
// second instance has an invocation and the first one has none. It returns the time from the signal
// to the CMS's first request with a higher fence. It posts messages all the time, so that the
// holder keeps the lane until the signal.
func measureTakeover(ctx context.Context, b *bench, signal syscall.Signal,
	lease, wait time.Duration) (time.Duration, error) {
	repeats := 1 // a graceful stop can cut off a request that the CMS still finishes
	if signal == syscall.SIGKILL {
		repeats = uncommitted
	}

	r, err := b.newWarmRig(ctx, rigOptions{lease: lease, latency: cmsLatency,
		senders: &senderLog{by: map[int64]int{}}})
	if err != nil {
		return 0, err
	}
	defer r.shutDown()
	f, first := r.newFlow(), r.host.Status().Instances[0]
	if err := f.streamUntil(ctx, handlerURL(first)+"/api/messages",
		func() bool { return r.cms.Stats().Writes > 0 }); err != nil {
		return 0, err
	}

	second, err := addSecondInstance(ctx, r, f, handlerURL(first)+"/api/messages")
	if err != nil {
		return 0, err
	}

	began := time.Now()
	isTime := func() bool { return time.Since(began) > 2*time.Second+wait }
	if err := f.streamUntil(ctx, second, isTime); err != nil {
		return 0, err
	}

	fence := highestFence(r)
	holder, other, err := r.findHolder(fence)
	if err != nil {
		return 0, err
	}

	if err := syscall.Kill(holder.PID, signal); err != nil {
		return 0, err
	}

	ended := time.Now()

	if err := f.streamUntil(ctx, handlerURL(other)+"/api/messages",
		func() bool { return highestFence(r) > fence }); err != nil {
		return 0, err
	}

	took := firstRequestAbove(r, fence).Sub(ended)
	if took <= 0 {
		return 0, errors.New("the lane changed hands while its holder was ended")
	}

	return took, f.awaitEndWith(ctx, repeats)
}

// findHolder returns the instance that sent the requests with the given fence, and the other one of
// two.
func (r *rig) findHolder(fence int64) (holder, other host.InstanceStatus, err error) {
	r.senders.mu.Lock()
	number := r.senders.by[fence]
	r.senders.mu.Unlock()

	all := r.host.Status().Instances
	if len(all) != 2 || number != all[0].Number && number != all[1].Number {
		return holder, other, fmt.Errorf("fence %d belongs to none of %d instances", fence,
			len(all))
	}
	if number == all[0].Number {
		return all[0], all[1], nil
	}

	return all[1], all[0], nil
}

// addSecondInstance adds an instance, and posts messages to url until the new handler is ready. It
// returns the address of functions/receive at the new handler.
func addSecondInstance(ctx context.Context, r *rig, f *trickleFlow, url string) (string, error) {
	resp, err := r.client.Post(r.host.URL()+"/admin/host/instances", "", nil)
	if err != nil {
		return "", err
	}

	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("add an instance: %s", resp.Status)
	}

	second := r.host.Status().Instances[1]
	err = f.streamUntil(ctx, url, func() bool {
		return getURL(ctx, r.client, handlerURL(second)+"/api/health",
			nil) == nil
	})

	return handlerURL(second) + "/api/messages", err
}

// streamUntil posts messages, with a pause after each, until "holds" returns true. If that takes
// longer than takeoverLimit, streamUntil returns an error.
func (f *trickleFlow) streamUntil(ctx context.Context, url string, holds func() bool) error {
	for began := time.Now(); !holds(); {
		if err := f.postNext(ctx, url); err != nil {
			return err
		}

		if !sleepFor(ctx, streamGap) {
			return ctx.Err()
		}
		if time.Since(began) > takeoverLimit {
			return fmt.Errorf("not within %s", takeoverLimit)
		}
	}

	return nil
}

func highestFence(r *rig) int64 {
	var fence int64
	for _, req := range r.cms.Requests() {
		fence = max(fence, req.Fence)
	}
	return fence
}

// firstRequestAbove returns the start of the earliest request with a higher fence than the given
// one. If there is no such request, it returns the zero time.
func firstRequestAbove(r *rig, fence int64) (at time.Time) {
	for _, req := range r.cms.Requests() {
		if req.Fence > fence && (at.IsZero() || req.StartedAt.Before(at)) {
			at = req.StartedAt
		}
	}
	return at
}
