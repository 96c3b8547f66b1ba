package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/tools/democms/server"
)

const (
	dueLatency = time.Millisecond // of the CMS
	dueLanes   = 8
	// dueMargin is between the restart's readiness and the first moment, and the other way
	// round for a holder that is killed: shorter than what a lane is taken ahead.
	dueMargin = 4 * time.Second
	dueHeld   = time.Second
)

// appointments are messages, one for each key, and their moments.
type appointments map[message]time.Time

// appoint spreads n messages at random over a span.
func appoint(space string, n int, from time.Time, span time.Duration) appointments {
	moments := appointments{}
	for _, m := range messages(space, n, n) {
		moments[m] = from.Add(rand.N(span)).UTC().Truncate(time.Microsecond)
	}
	return moments
}

func (a appointments) first() (at time.Time) {
	for _, due := range a {
		if at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}

// book posts messages with their moments, from many clients. All must be filed before the
// first moment.
func (r *rig) book(ctx context.Context, a appointments) error {
	group, posting := errgroup.WithContext(ctx)
	group.SetLimit(r.sizes.clients)
	for m, due := range a {
		group.Go(func() error {
			return postBody(posting, r.client, r.receive(), m.body(), http.Header{"Weir-Deliver-At": {due.Format(time.RFC3339Nano)}})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if late := time.Since(a.first()); late > 0 {
		return fmt.Errorf("the last message was filed %s after the first was due", late)
	}
	return nil
}

// lateness gives, in ms, how long after its moment each message's request began at the CMS;
// what was due before ready counts from there. Too early is an error.
func lateness(cms *server.Server, a appointments, ready time.Time) ([]float64, error) {
	var late []float64
	var early []error
	for _, req := range cms.Requests() {
		due := a[message{req.Path, req.Version}]
		if req.StartedAt.Before(due) {
			early = append(early, fmt.Errorf("%s came %s early", req.Path, due.Sub(req.StartedAt)))
		}
		if due.Before(ready) {
			due = ready
		}
		late = append(late, ms(req.StartedAt.Sub(due)))
	}
	return late, errors.Join(early...)
}

// met waits until all have come and holds the CMS's record against them.
func (r *rig) met(ctx context.Context, a appointments, ready time.Time) ([]float64, error) {
	if err := r.delivered(ctx, len(a)); err != nil {
		return nil, err
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return nil, err
	}
	late, err := lateness(r.cms, a, ready)
	return late, errors.Join(err, r.clean(len(a)))
}

// due measures how late messages come that were told a moment: where an instance lives, and
// where every instance was killed before.
func due(ctx context.Context, b *bench) ([]result, error) {
	live, err := b.dueLive(ctx)
	if err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}
	rested, err := b.dueKilled(ctx, dueMargin+dueHeld)
	if err != nil {
		return live, fmt.Errorf("killed at rest: %w", err)
	}
	holding, err := b.dueKilled(ctx, dueHeld)
	if err != nil {
		return live, fmt.Errorf("killed while holding: %w", err)
	}
	return append(live,
		measured("due: lateness after every instance was killed, max", "ms", slices.Max(rested.late)).atMost(2000).
			noted("%s; SIGKILL %s before the first moment, the lanes being at rest; ready again after %.2f s", spread(rested.late), dueMargin+dueHeld, rested.down.Seconds()),
		measured("due: from a SIGKILL of the holders to the last message", "s", holding.after.Seconds()).against(takeoverLease.Seconds()).beyond(2).
			noted("SIGKILL %s before the first moment, when the lanes were held: what is left of the lease has to pass; ready again after %.2f s", dueHeld, holding.down.Seconds())), nil
}

func (b *bench) dueLive(ctx context.Context) ([]result, error) {
	r, err := b.newRig(ctx, setup{lanes: dueLanes, latency: dueLatency})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	a := appoint("due", b.sizes.due, time.Now().Add(b.sizes.dueLead), b.sizes.dueSpan)
	if err := r.book(ctx, a); err != nil {
		return nil, err
	}
	used, err := r.transactions(ctx)
	if err != nil {
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
	after, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	used = minus(after, used)
	return []result{
		measured("due: lateness p50, live instance", "ms", median(late)).against(median(bare)).atMost(5).
			noted("%d messages on %d lanes at random moments within %s, none early; %s", len(late), dueLanes, b.sizes.dueSpan, spread(late)),
		measured("due: lateness p99, live instance", "ms", percentile(late, 0.99)).against(percentile(bare, 0.99)).atMost(20),
		measured("due: lateness max, live instance", "ms", slices.Max(late)).against(slices.Max(bare)),
		measured("due: transactions per message", "", total(used)/float64(len(a))).noted("after all were filed: %s", shares(used, len(a))),
	}, nil
}

// killed is what came of a SIGKILL of all instances.
type killed struct {
	late  []float64     // ms
	down  time.Duration // until the last was ready again
	after time.Duration // until the last message came
}

// dueKilled kills every instance so long before the first moment, and lets the host restart
// them.
func (b *bench) dueKilled(ctx context.Context, before time.Duration) (killed, error) {
	var k killed
	r, err := b.newRig(ctx, setup{lanes: dueLanes, latency: dueLatency, instances: 2, lease: takeoverLease})
	if err != nil {
		return k, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return k, err
	}
	a := appoint("due", b.sizes.dueKilled, time.Now().Add(b.sizes.dueLead+dueMargin), time.Second)
	if err := r.book(ctx, a); err != nil {
		return k, err
	}
	if err := r.released(ctx); err != nil {
		return k, err
	}
	if !pause(ctx, time.Until(a.first().Add(-before))) {
		return k, ctx.Err()
	}
	began := time.Now()
	if err := r.killAll(ctx); err != nil {
		return k, err
	}
	ready := time.Now()
	k.down = ready.Sub(began)
	if k.late, err = r.met(ctx, a, ready); err != nil {
		return k, err
	}
	for _, req := range r.cms.Requests() {
		k.after = max(k.after, req.StartedAt.Sub(began))
	}
	return k, nil
}

// killAll ends every handler by SIGKILL and waits until others are ready in their stead.
func (r *rig) killAll(ctx context.Context) error {
	old := map[int]bool{}
	for _, i := range r.host.Status().Instances {
		old[i.PID] = true
		if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return r.until(ctx, readyLimit, "the handlers are ready again", func() bool {
		for _, i := range r.host.Status().Instances {
			if i.PID == 0 || old[i.PID] || get(ctx, r.client, at(i)+"/api/health", nil) != nil {
				return false
			}
		}
		return true
	})
}

// released waits until no lane is held, though messages may wait for their moments.
func (r *rig) released(ctx context.Context) error {
	return r.until(ctx, readyLimit, "the lanes are released", func() bool {
		for n := range r.lanes {
			c, err := r.store.ReadControl(ctx, n)
			if err != nil || c.Tail.IsOpen || c.Head.Next > c.Tail.Cursor {
				return false
			}
		}
		return true
	})
}
