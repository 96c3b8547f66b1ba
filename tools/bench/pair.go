package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/democms"
)

// The scenarios of this file measure two instances of Weir, and beside them two instances of the
// queue listener's stand-in (listenerProgram) as the baseline.

// Targets for messages that two instances accept, in ms.
const (
	pairMedianLimit = 60
	pairTailLimit   = 150
	pairWakeLimit   = 150 // the first message after a rest
)

// pair is two instances of Weir, and two of the stand-in.
type pair struct {
	*rig
	peer *listenerPair
}

// newPair returns a pair that has already delivered some messages. The caller must call stop.
func (b *bench) newPair(ctx context.Context, o rigOptions) (*pair, error) {
	o.instances, o.senders = 2, &senderLog{by: map[int64]int{}}
	r, err := b.newWarmRig(ctx, o)
	if err != nil {
		return nil, err
	}

	peer, err := b.startListeners(ctx, rigOptions{latency: o.latency})
	if err != nil {
		return nil, errors.Join(err, r.shutDown())
	}

	p := &pair{r, peer}
	if err := peer.warmPair(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}

	return p, nil
}

func (p *pair) stop() error { return errors.Join(p.peer.stop(), p.shutDown()) }

// runTwo posts single messages to two instances. First the instances get them in turn. Then only
// the instance gets them that does not hold the lane. It measures the time from the post to the
// request at the CMS. The stand-in gets a message half-way between two messages of Weir.
func runTwo(ctx context.Context, b *bench) ([]result, error) {
	p, err := b.newPair(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	urls, peerURLs := p.handlerURLs(), p.peer.urls()
	n := b.sizes.pair.trickle
	inTurn, peerInTurn, err := p.trickleBoth(ctx, n, urls, peerURLs)
	if err != nil {
		return nil, err
	}

	holder, err := p.takeLane(ctx)
	if err != nil {
		return nil, err
	}

	other := 1 - holder
	apart, peerApart, err := p.trickleBoth(ctx, n, urls[other:other+1], peerURLs[1:])
	if err != nil {
		return nil, err
	}

	sentThere := len(requestsOfInstance(p.rig, holder+1))
	rows := compareTrickles("two instances in turn", inTurn, peerInTurn, b.sizes.trickle.gap)
	rows = append(rows, compareTrickles("the instance without the lane", apart, peerApart,
		b.sizes.trickle.gap)...)
	last := &rows[len(rows)-1]
	*last = last.withNote("%s; the instance that held the lane at first sent %d of %d", last.Note,
		sentThere, n)

	return rows, nil
}

// takeLane clears the CMS's record, and posts to the first instance until the CMS has got a
// message. It returns the index of the instance that holds the lane then.
func (p *pair) takeLane(ctx context.Context) (holder int, err error) {
	p.cms.Reset()
	f := p.newFlow()
	if err := f.streamUntil(ctx, p.handlerURLs()[0],
		func() bool { return p.cms.Stats().Writes > 0 }); err != nil {
		return 0, err
	}

	if err := f.awaitDelivered(ctx, f.number); err != nil {
		return 0, err
	}

	for i := range p.handlerURLs() {
		if len(requestsOfInstance(p.rig, i+1)) > 0 {
			holder = i
		}
	}

	return holder, nil
}

// trickleBoth posts n messages, one each trickle.gap, to the addresses of Weir in turn, and as many
// to those of the stand-in. Before that it clears the record of both CMSs. It returns the times
// from a message's post to the start of its request at the CMS, in ms.
func (p *pair) trickleBoth(ctx context.Context, n int, urls, peerURLs []string) (ours,
	peers []float64, err error) {
	p.cms.Reset()
	p.peer.cms.Reset()
	f, g := p.newFlow(), p.peer.newFlow()
	for i := range n {
		if err := f.postNext(ctx, urls[i%len(urls)]); err != nil {
			return nil, nil, err
		}

		sleepFor(ctx, p.sizes.trickle.gap/2)
		if err := g.postNext(ctx, peerURLs[i%len(peerURLs)]); err != nil {
			return nil, nil, err
		}

		if !sleepFor(ctx, p.sizes.trickle.gap/2) {
			return nil, nil, ctx.Err()
		}
	}

	for _, flow := range []*trickleFlow{f, g} {
		if err := flow.awaitDelivered(ctx, n); err != nil {
			return nil, nil, err
		}
		if err := flow.checkRecord(n); err != nil {
			return nil, nil, err
		}
	}

	ours, _ = f.deliveryTimes()
	peers, _ = g.deliveryTimes()

	return ours, peers, nil
}

// compareTrickles returns the rows of p50 and p99, with those of the stand-in as the baseline.
func compareTrickles(name string, ours, peers []float64, gap time.Duration) []result {
	row := func(rank string, p, limit float64) result {
		return newRow("accept to CMS "+rank+", "+name, "ms", percentile(ours, p)).
			withBaseline(percentile(peers, p)).limitValue(limit).
			withNote("from the sending, one message each %s: %s; listener stand-in: %s", gap,
				describeSpread(ours), describeSpread(peers))
	}
	return []result{row("p50", 0.5, pairMedianLimit), row("p99", 0.99, pairTailLimit)}
}

// runPairBurst measures a burst on one lane that two instances accept, and the same burst through
// the stand-in.
func runPairBurst(ctx context.Context, b *bench) ([]result, error) {
	p, err := b.newPair(ctx, rigOptions{latency: cmsLatency})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	all := makeMessages("pair", b.sizes.load.burst, b.sizes.load.keys)
	got, err := p.runBurst(ctx, all, p.handlerURLs()...)
	if err != nil {
		return nil, err
	}

	before, err := p.peer.readRequests(ctx)
	if err != nil {
		return nil, err
	}

	began := time.Now()
	if err := p.peer.sendMessages(ctx, all, b.sizes.load.clients, p.peer.urls()...); err != nil {
		return nil, err
	}

	if err := p.peer.awaitDelivered(ctx, len(all)); err != nil {
		return nil, err
	}

	elapsed := lastEnd(p.peer.cms.Requests()).Sub(began).Seconds()
	after, err := p.peer.readRequests(ctx)
	if err != nil {
		return nil, err
	}

	n, limit := float64(len(all)), float64(len(all))*got.trip/1000
	bySecond := len(requestsOfInstance(p.rig, 2))

	return []result{
		newRow("serial burst, two instances", "s", got.elapsed).withLeast(limit).requireRatio(0.97).
			withNote("%d messages, %d clients, half of them at each instance, bare round trip "+
				"%.2f ms; the instances sent %d and %d", len(all), b.sizes.load.clients, got.trip,
				len(all)-bySecond, bySecond),
		newRow("transactions per message, serial burst, two instances", "", sumCounts(got.used)/n).
			withBaseline((after-before)/n).limitValue(0.5).
			withNote("the yardstick is the listener stand-in; %s",
				describeShares(got.used, len(all))),
		newRow("listener stand-in, serial burst, two instances", "s", elapsed).withLeast(limit).
			withNote("%d writes came after a later one of their key",
				p.peer.cms.Stats().Inversions),
	}, nil
}

// lastEnd returns the end of the request that ended last.
func lastEnd(requests []democms.Request) (ended time.Time) {
	for _, q := range requests {
		ended = laterOf(ended, q.EndedAt)
	}
	return ended
}

// runPairIdle counts the requests to storage of two instances at rest. After that it posts messages
// one by one, each after a rest in which the lane has no holder, and measures the time from each
// post to the request at the CMS.
func runPairIdle(ctx context.Context, b *bench) ([]result, error) {
	p, err := b.newPair(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer p.stop()
	sizes := b.sizes.pair
	if !sleepFor(ctx, sizes.backOff) {
		return nil, ctx.Err()
	}

	before, err1 := p.readTransactions(ctx)
	peerBefore, err2 := p.peer.readRequests(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	if !sleepFor(ctx, sizes.idle) {
		return nil, ctx.Err()
	}

	after, err1 := p.readTransactions(ctx)
	peerAfter, err2 := p.peer.readRequests(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	used, minutes := subtractCounts(after, before), sizes.idle.Minutes()
	ours, peers, err := p.wakeBoth(ctx, sizes.wakes, sizes.rest)
	if err != nil {
		return nil, err
	}

	return []result{
		newRow("idle, two instances, requests to storage a minute", "", sumCounts(used)/minutes).
			withBaseline((peerAfter-peerBefore)/minutes).
			withNote("%s after %s of rest, in total: %s; the yardstick is the listener stand-in, "+
				"which polls each %s", sizes.idle, sizes.backOff, describeShares(used, 1),
				listenerPoll),
		newRow("first message after idle, two instances, worst", "ms", slices.Max(ours)).
			withBaseline(slices.Max(peers)).limitValue(pairWakeLimit).
			withNote("each after %s without a holder, to both instances in turn; in order: %.0f "+
				"ms; listener stand-in: %.0f ms", sizes.rest, ours, peers),
	}, nil
}

// wakeBoth posts n messages to Weir's instances in turn, each when the lane has had no holder for
// the time "rest", and half a second later one to the stand-in. It returns the times from a
// message's post to the start of its request at the CMS, in ms and in order.
func (p *pair) wakeBoth(ctx context.Context, n int, rest time.Duration) (ours, peers []float64,
	err error) {
	f, g := p.newFlow(), p.peer.newFlow()
	urls, peerURLs := p.handlerURLs(), p.peer.urls()
	for i := range n {
		if err := f.postNext(ctx, urls[i%2]); err != nil {
			return nil, nil, err
		}

		if !sleepFor(ctx, time.Second/2) {
			return nil, nil, ctx.Err()
		}

		if err := g.postNext(ctx, peerURLs[i%2]); err != nil {
			return nil, nil, err
		}

		if err := errors.Join(f.awaitEnd(ctx), g.awaitDelivered(ctx, g.number)); err != nil {
			return nil, nil, err
		}

		if !sleepFor(ctx, rest) {
			return nil, nil, ctx.Err()
		}
	}

	ours, _ = f.deliveryTimes()
	peers, _ = g.deliveryTimes()

	return ours, peers, nil
}

// runBack lets the CMS answer 503 for a time while messages come, with one instance and with two.
// It measures the time from the CMS's return to the first write. The stand-in's CMS is away at the
// same time.
func runBack(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, instances := range []int{1, 2} {
		row, err := measureBack(ctx, b, instances)
		if err != nil {
			return rows, fmt.Errorf("%d instances: %w", instances, err)
		}
		rows = append(rows, row)
	}

	return rows, nil
}

const (
	backLimit = 1.5                    // target for the time until the first write, in s
	outageGap = 200 * time.Millisecond // time between two messages during an outage
)

func measureBack(ctx context.Context, b *bench, instances int) (row result, err error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: cmsLatency, instances: instances})
	if err != nil {
		return row, err
	}
	defer r.shutDown()
	peer, err := b.startListeners(ctx, rigOptions{latency: cmsLatency})
	if err != nil {
		return row, err
	}
	defer peer.stop()
	var ours, peers []float64
	for n := range b.sizes.pair.outages {
		// Weir and the stand-in try again each second, so the outages end at different parts of a
		// second.
		span := b.sizes.pair.outage + time.Duration(2*n+1)*time.Second/
			time.Duration(2*b.sizes.pair.outages)
		group, outage := errgroup.WithContext(ctx)
		var mine, other float64
		group.Go(func() (err error) {
			mine, err = r.measureReturn(outage, r.handlerURLs(), span)
			return err
		})
		group.Go(func() (err error) {
			other, err = peer.measureReturn(outage, peer.urls(), span)
			return err
		})
		if err := group.Wait(); err != nil {
			return row, err
		}

		ours, peers = append(ours, mine), append(peers, other)
	}

	name := fmt.Sprintf("CMS back after %s of 503, %d instances: until the first write, worst",
		b.sizes.pair.outage, instances)

	return newRow(name, "s", slices.Max(ours)).
		withBaseline(slices.Max(peers)).limitValue(backLimit).
		withNote("%d outages: %.2f s; listener stand-in, which tries again each %s: %.2f s",
			len(ours), ours, listenerRetryPause, peers), nil
}

// measureReturn lets the CMS answer 503 for the time "outage", and posts a message each outageGap
// from then until the first write. It returns the time from the end of the outage to the start of
// that write, in s. Then it waits for all messages, and clears the CMS's record.
func (r *rig) measureReturn(ctx context.Context, urls []string, outage time.Duration) (float64,
	error) {
	f := r.newFlow()
	r.cms.SetFaults(democms.Faults{Down: true})
	from := time.Now()
	var back time.Time
	for number := 0; back.IsZero() || r.cms.Stats().Writes == 0; number++ {
		if back.IsZero() && time.Since(from) >= outage {
			r.cms.SetFaults(democms.Faults{})
			back = time.Now()
		}

		if err := f.postNext(ctx, urls[number%len(urls)]); err != nil {
			return 0, err
		}

		if !sleepFor(ctx, min(outageGap, max(0, time.Until(from.Add(outage)))+time.Millisecond)) {
			return 0, ctx.Err()
		}
		if time.Since(from) > outage+burstLimit {
			return 0, fmt.Errorf("no write within %s after the outage", burstLimit)
		}
	}

	if err := f.awaitDelivered(ctx, f.number); err != nil {
		return 0, err
	}
	if err := f.checkRecord(f.number); err != nil {
		return 0, err
	}

	first := time.Time{}
	for _, q := range r.cms.Requests() {
		isFirst := first.IsZero() || q.StartedAt.Before(first)
		if q.Status < 300 && q.StartedAt.After(back) && isFirst {
			first = q.StartedAt
		}
	}

	r.cms.Reset()
	if first.IsZero() {
		return 0, errors.New("the CMS's record has no write after the outage")
	}

	return first.Sub(back).Seconds(), nil
}
