package main

import (
	"context"
	"fmt"
	"time"
)

// trickleFlow posts single messages, and records the time of each post and of its answer.
type trickleFlow struct {
	*rig
	number         int // number of posted messages
	sent, answered map[message]time.Time
}

func (r *rig) newFlow() *trickleFlow {
	return &trickleFlow{rig: r, sent: map[message]time.Time{}, answered: map[message]time.Time{}}
}

// flowKeys is the number of keys over which a trickleFlow spreads its messages.
const flowKeys = 20

func (f *trickleFlow) postNext(ctx context.Context, url string) error {
	m := message{fmt.Sprintf("/flow/%d", f.number%flowKeys), f.number/flowKeys + 1}
	f.number++
	f.sent[m] = time.Now()
	err := postMessage(ctx, f.client, url, m)
	f.answered[m] = time.Now()
	return err
}

// deliveryTimes returns two durations in ms for each request at the CMS: from the post of the
// message to the start of the request, and from the 202 to the start of the request. The second
// duration is negative if the request started before the 202.
func (f *trickleFlow) deliveryTimes() (fromSent, fromAnswer []float64) {
	for _, req := range f.cms.Requests() {
		m := message{req.Path, req.Version}
		fromSent = append(fromSent, milliseconds(req.StartedAt.Sub(f.sent[m])))
		fromAnswer = append(fromAnswer, milliseconds(req.StartedAt.Sub(f.answered[m])))
	}
	return fromSent, fromAnswer
}

// awaitEnd waits until all messages are delivered and the lanes are idle. Then it checks the CMS's
// record.
func (f *trickleFlow) awaitEnd(ctx context.Context) error { return f.awaitEndWith(ctx, 0) }

// awaitEndWith waits and checks as awaitEnd does. The record may have up to "repeats" repeated
// writes.
func (f *trickleFlow) awaitEndWith(ctx context.Context, repeats int) error {
	if err := f.awaitDelivered(ctx, f.number); err != nil {
		return err
	}

	if err := f.awaitRest(ctx); err != nil {
		return err
	}
	return f.checkRecordWithRepeats(f.number, repeats)
}

// runTrickle posts single messages with gaps to one instance. It measures the storage requests per
// message, and the time from the post to the request at the CMS.
func runTrickle(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	yardstick, err := newBareClient(ctx, r)
	if err != nil {
		return nil, err
	}
	defer yardstick.account.Close()
	used, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	f, url := r.newFlow(), r.handlerURLs()[0]
	var appends []float64
	for range b.sizes.trickle.messages {
		if err := f.postNext(ctx, url); err != nil {
			return nil, err
		}

		if !sleepFor(ctx, b.sizes.trickle.gap/2) {
			return nil, ctx.Err()
		}

		spent, err := timeStep(ctx,
			func() error { return yardstick.appendRow(ctx, message{"/bare", 1}) })
		if err != nil {
			return nil, err
		}

		appends = append(appends, spent)
		sleepFor(ctx, b.sizes.trickle.gap/2-quietPause)
	}

	if err := f.awaitEnd(ctx); err != nil {
		return nil, err
	}

	after, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	used = subtractCounts(after, used)
	latency, answered := f.deliveryTimes()
	base, rank := median(appends), "p50"
	if b.delay > 0 { // delayed storage answers some requests much later than the median
		base, rank = percentile(appends, 0.99), "p99"
	}

	return []result{
		newRow("transactions per message, trickle", "", sumCounts(used)/float64(f.number)).limitValue(6).withNote("%s",
			describeShares(used, f.number)),
		newRow("accept to CMS p50, trickle, one instance", "ms",
			median(latency)).withBaseline(median(appends)).limitDistance(5).
			withNote("from the sending: %s; from the 202: %s; bare append transaction: %s",
				describeSpread(latency), describeSpread(answered), describeSpread(appends)),
		newRow("accept to CMS p95, trickle, one instance", "ms",
			percentile(latency, 0.95)).withBaseline(percentile(appends, 0.95)),
		newRow("accept to CMS p99, trickle, one instance", "ms",
			percentile(latency, 0.99)).withBaseline(base).limitDistance(20).
			withNote("the yardstick is the append's %s", rank),
	}, nil
}

// runIdle waits until the host polls at its longest interval, and then counts the requests to
// storage in whole minutes. After that it posts messages one by one. Before each post, it waits
// until the lane has no holder. It measures the time from each post to the request at the CMS.
func runIdle(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	if !sleepFor(ctx, b.sizes.idle.backOff) {
		return nil, ctx.Err()
	}

	before, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	minutes := b.sizes.idle.minutes
	if !sleepFor(ctx, time.Duration(minutes)*time.Minute) {
		return nil, ctx.Err()
	}

	after, err := r.readTransactions(ctx)
	if err != nil {
		return nil, err
	}

	used := subtractCounts(after, before)
	f := r.newFlow()
	for range b.sizes.idle.wakes {
		if err := f.postNext(ctx, r.handlerURLs()[0]); err != nil {
			return nil, err
		}
		if err := f.awaitEnd(ctx); err != nil {
			return nil, err
		}
	}

	latency, _ := f.deliveryTimes()
	const polling = 86400 // polls per day if the host polls once per second

	return []result{
		newRow("idle, transactions per day", "",
			sumCounts(used)/float64(minutes)*24*60).withBaseline(polling).limitValue(6000).
			withNote("%d minutes after %s of rest, per minute: %s", minutes, b.sizes.idle.backOff,
				describeShares(used, minutes)),
		newRow("accept to CMS out of idleness, first message", "ms", latency[0]).
			withNote("then %d more, each once the lane was released: %s", len(latency)-1,
				describeSpread(latency)),
	}, nil
}
