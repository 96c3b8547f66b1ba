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

	"weir/internal/democms"
)

const (
	dueLatency = time.Millisecond // latency of the CMS
	dueLanes   = 8
	// The bench kills the handlers before the first due time. If the lanes must have holders at the
	// kill, the time from the kill to the first due time is dueHeld. Otherwise the time is
	// dueMargin+dueHeld. A process takes a lane 2 s before a due time (lane.DueLead).
	dueMargin = 4 * time.Second
	dueHeld   = time.Second
)

// dueTimes has the due time of each message. No two messages have the same key.
type dueTimes map[message]time.Time

// spreadDueTimes returns n messages with random due times. The times lie in the span that begins at
// "from".
func spreadDueTimes(space string, n int, from time.Time, span time.Duration) dueTimes {
	moments := dueTimes{}
	for _, m := range makeMessages(space, n, n) {
		moments[m] = from.Add(rand.N(span)).UTC().Truncate(time.Microsecond)
	}
	return moments
}

func (a dueTimes) firstDue() (at time.Time) {
	for _, due := range a {
		if at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}

// postDueMessages posts messages with their due times, from concurrent clients. It returns an error
// if a message is due before all messages are accepted.
func postDueMessages(ctx context.Context, r *rig, a dueTimes) error {
	group, posting := errgroup.WithContext(ctx)
	group.SetLimit(r.sizes.load.clients)

	for m, due := range a {
		group.Go(func() error {
			return postBody(posting, r.client, r.receiveURL(), m.articleBody(),
				http.Header{"Weir-Deliver-At": {due.Format(time.RFC3339Nano)}})
		})
	}

	if err := group.Wait(); err != nil {
		return err
	}

	if late := time.Since(a.firstDue()); late > 0 {
		return fmt.Errorf("the last message was filed %s after the first was due", late)
	}

	return nil
}

// measureLateness returns, in ms, a lateness for each request at the CMS: the time from the due
// time of the request's message to the start of the request. If the due time is before "ready", the
// lateness counts from "ready". A request before the due time is an error.
func measureLateness(cms *democms.Server, a dueTimes, ready time.Time) ([]float64, error) {
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

		late = append(late, milliseconds(req.StartedAt.Sub(due)))
	}

	return late, errors.Join(early...)
}

// awaitDueMessages waits until all messages are delivered, checks the CMS's record, and returns the
// lateness of each message (see measureLateness).
func awaitDueMessages(ctx context.Context, r *rig, a dueTimes, ready time.Time) ([]float64, error) {
	if err := r.awaitDelivered(ctx, len(a)); err != nil {
		return nil, err
	}

	if err := r.awaitRest(ctx); err != nil {
		return nil, err
	}

	late, err := measureLateness(r.cms, a, ready)
	return late, errors.Join(err, r.checkRecord(len(a)))
}

// runDue measures the lateness of messages with due times in three cases:
//   - an instance runs all the time
//   - all handlers are killed while no lane has a holder
//   - all handlers are killed while the lanes have holders
func runDue(ctx context.Context, b *bench) ([]result, error) {
	live, err := measureDueLive(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("live: %w", err)
	}

	rested, err := measureDueKilled(ctx, b, dueMargin+dueHeld)
	if err != nil {
		return live, fmt.Errorf("killed at rest: %w", err)
	}

	holding, err := measureDueKilled(ctx, b, dueHeld)
	if err != nil {
		return live, fmt.Errorf("killed while the lanes had holders: %w", err)
	}

	return append(live,
		newRow("due: lateness after every instance was killed, max", "ms", slices.Max(rested.late)).limitValue(2000).
			withNote("%s; SIGKILL %s before the first moment, the lanes being at rest; ready again after %.2f s",
				describeSpread(rested.late), dueMargin+dueHeld, rested.untilReady.Seconds()),
		newRow("due: from a SIGKILL of the holders to the last message", "s",
			holding.untilLast.Seconds()).withBaseline(takeoverLease.Seconds()).limitDistance(2).
			withNote("SIGKILL %s before the first moment, when the lanes had holders: the rest of the lease has to "+
				"pass; ready again after %.2f s", dueHeld, holding.untilReady.Seconds())), nil
}

// measureDueLive measures the lateness while an instance runs. The baseline is a program that posts
// by timers at the same due times.
func measureDueLive(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{lanes: dueLanes, latency: dueLatency})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	a := spreadDueTimes("due", b.sizes.due.messages, time.Now().Add(b.sizes.due.lead),
		b.sizes.due.span)
	if err := postDueMessages(ctx, r, a); err != nil {
		return nil, err
	}

	used, err := r.readTransactions(ctx)
	if err != nil {
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

	after, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	used = subtractCounts(after, used)

	return []result{
		newRow("due: lateness p50, live instance", "ms", median(late)).withBaseline(median(bare)).limitValue(5).
			withNote("%d messages on %d lanes at random moments within %s, none early; %s",
				len(late), dueLanes, b.sizes.due.span, describeSpread(late)),
		newRow("due: lateness p99, live instance", "ms",
			percentile(late, 0.99)).withBaseline(percentile(bare, 0.99)).limitValue(20),
		newRow("due: lateness max, live instance", "ms", slices.Max(late)).withBaseline(
			slices.Max(bare)),
		newRow("due: transactions per message", "",
			sumCounts(used)/float64(len(a))).withNote("after all were filed: %s",
			describeShares(used, len(a))),
	}, nil
}

// killFigures has the figures for a SIGKILL of all handlers.
type killFigures struct {
	// lateness in ms, from the due time or the handlers' readiness, whichever is later
	late []float64
	// time from the kill until the new handlers of all instances were ready
	untilReady time.Duration
	untilLast  time.Duration // time from the kill to the start of the last request
}

// measureDueKilled kills all handlers before the first due time. The time from the kill to the
// first due time is "lead". The host starts new handlers.
func measureDueKilled(ctx context.Context, b *bench, lead time.Duration) (killFigures, error) {
	var k killFigures
	r, err := b.newWarmRig(ctx,
		rigOptions{lanes: dueLanes, latency: dueLatency, instances: 2, lease: takeoverLease})
	if err != nil {
		return k, err
	}
	defer r.shutDown()
	a := spreadDueTimes("due", b.sizes.due.killed, time.Now().Add(b.sizes.due.lead+dueMargin),
		time.Second)
	if err := postDueMessages(ctx, r, a); err != nil {
		return k, err
	}

	if err := awaitReleased(ctx, r); err != nil {
		return k, err
	}

	if !sleepFor(ctx, time.Until(a.firstDue().Add(-lead))) {
		return k, ctx.Err()
	}

	began := time.Now()
	if err := killHandlers(ctx, r); err != nil {
		return k, err
	}

	ready := time.Now()
	k.untilReady = ready.Sub(began)
	if k.late, err = awaitDueMessages(ctx, r, a, ready); err != nil {
		return k, err
	}

	for _, req := range r.cms.Requests() {
		k.untilLast = max(k.untilLast, req.StartedAt.Sub(began))
	}

	return k, nil
}

// killHandlers kills all handlers and waits until the handlers that replace them are ready.
func killHandlers(ctx context.Context, r *rig) error {
	old := map[int]bool{}
	for _, i := range r.host.Status().Instances {
		old[i.PID] = true
		if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
			return err
		}
	}

	return r.awaitCondition(ctx, readyLimit, "the handlers are ready again", func() bool {
		for _, i := range r.host.Status().Instances {
			if i.PID == 0 || old[i.PID] ||
				getURL(ctx, r.client, handlerURL(i)+"/api/health", nil) != nil {
				return false
			}
		}
		return true
	})
}

// awaitReleased waits until no lane has a holder and each lane's log is read to its end. Scheduled
// messages can still wait.
func awaitReleased(ctx context.Context, r *rig) error {
	return r.awaitCondition(ctx, readyLimit, "the lanes are released", func() bool {
		for n := range r.lanes {
			c, err := r.store.ReadControl(ctx, n)
			if err != nil || c.Tail.IsOpen || c.Head.Next > c.Tail.Cursor {
				return false
			}
		}
		return true
	})
}
