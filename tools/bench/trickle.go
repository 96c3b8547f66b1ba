package main

import (
	"context"
	"fmt"
	"time"
)

// flow is a trickle of messages, one now and then, and when each was sent and accepted.
type flow struct {
	*rig
	number         int
	sent, answered map[message]time.Time
}

func (r *rig) newFlow() *flow {
	return &flow{rig: r, sent: map[message]time.Time{}, answered: map[message]time.Time{}}
}

// flowKeys is over how many keys a trickle is spread.
const flowKeys = 20

// post sends the next message.
func (f *flow) post(ctx context.Context, url string) error {
	m := message{fmt.Sprintf("/flow/%d", f.number%flowKeys), f.number/flowKeys + 1}
	f.number++
	f.sent[m] = time.Now()
	err := post(ctx, f.client, url, m)
	f.answered[m] = time.Now()
	return err
}

// latencies gives, in ms, the times from the sending of each message to the beginning of
// its request at the CMS, and those from its 202, which are negative where the CMS was first.
func (f *flow) latencies() (fromSent, fromAnswer []float64) {
	for _, req := range f.cms.Requests() {
		m := message{req.Path, req.Version}
		fromSent = append(fromSent, ms(req.StartedAt.Sub(f.sent[m])))
		fromAnswer = append(fromAnswer, ms(req.StartedAt.Sub(f.answered[m])))
	}
	return fromSent, fromAnswer
}

// end waits until all is delivered and at rest, and checks the CMS's record.
func (f *flow) end(ctx context.Context) error { return f.endWith(ctx, 0) }

// endWith allows some repeats.
func (f *flow) endWith(ctx context.Context, repeats int) error {
	if err := f.delivered(ctx, f.number); err != nil {
		return err
	}
	if err := f.atRest(ctx, burstLimit); err != nil {
		return err
	}
	return f.cleanBut(f.number, repeats)
}

// trickle sends one message a second to one instance: what it costs and how long it takes.
func trickle(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	yardstick, err := r.newBare(ctx)
	if err != nil {
		return nil, err
	}
	defer yardstick.account.Close()
	used, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	f, url := r.newFlow(), r.direct()[0]
	var appends []float64
	for range b.sizes.trickle {
		if err := f.post(ctx, url); err != nil {
			return nil, err
		}
		if !pause(ctx, b.sizes.gap/2) {
			return nil, ctx.Err()
		}
		spent, err := timed(ctx, func() error { return yardstick.append(ctx, message{"/bare", 1}) })
		if err != nil {
			return nil, err
		}
		appends = append(appends, spent)
		pause(ctx, b.sizes.gap/2-quietPause)
	}
	if err := f.end(ctx); err != nil {
		return nil, err
	}
	after, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	used = minus(after, used)
	latency, answered := f.latencies()
	base, tail := median(appends), "p50"
	if b.delay > 0 { // storage has a tail of its own there
		base, tail = percentile(appends, 0.99), "p99"
	}
	return []result{
		measured("transactions per message, trickle", "", total(used)/float64(f.number)).atMost(6).noted("%s", shares(used, f.number)),
		measured("accept to CMS p50, trickle, one instance", "ms", median(latency)).against(median(appends)).beyond(5).
			noted("from the sending: %s; from the 202: %s; bare append transaction: %s", spread(latency), spread(answered), spread(appends)),
		measured("accept to CMS p95, trickle, one instance", "ms", percentile(latency, 0.95)).against(percentile(appends, 0.95)),
		measured("accept to CMS p99, trickle, one instance", "ms", percentile(latency, 0.99)).against(base).beyond(20).
			noted("the yardstick is the append's %s", tail),
	}, nil
}

// two lets posts alternate between two instances: half of the messages come to the one
// that does not hold the lane.
func two(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{instances: 2})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	f, urls := r.newFlow(), r.direct()
	for i := range b.sizes.trickle {
		if err := f.post(ctx, urls[i%len(urls)]); err != nil {
			return nil, err
		}
		if !pause(ctx, b.sizes.gap/2) {
			return nil, ctx.Err()
		}
	}
	if err := f.end(ctx); err != nil {
		return nil, err
	}
	latency, _ := f.latencies()
	return []result{measured("accept to CMS p99, trickle, two instances", "ms", percentile(latency, 0.99)).atMost(1000).
		noted("from the sending: %s, one message each %s", spread(latency), b.sizes.gap/2)}, nil
}

// idle lets the host's polling back off, counts for whole minutes, and then sees how long
// a message takes out of that state.
func idle(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	if !pause(ctx, b.sizes.backOff) {
		return nil, ctx.Err()
	}
	before, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	minutes := b.sizes.idleMinutes
	if !pause(ctx, time.Duration(minutes)*time.Minute) {
		return nil, ctx.Err()
	}
	after, err := r.transactions(ctx)
	if err != nil {
		return nil, err
	}
	used := minus(after, before)
	f := r.newFlow()
	for range b.sizes.wakes {
		if err := f.post(ctx, r.direct()[0]); err != nil {
			return nil, err
		}
		if err := f.end(ctx); err != nil {
			return nil, err
		}
	}
	latency, _ := f.latencies()
	const polling = 86400 // once a second
	return []result{
		measured("idle, transactions per day", "", total(used)/float64(minutes)*24*60).against(polling).atMost(6000).
			noted("%d minutes after %s of rest, per minute: %s", minutes, b.sizes.backOff, shares(used, minutes)),
		measured("accept to CMS out of idleness, first message", "ms", latency[0]).
			noted("then %d more, each once the lane was released: %s", len(latency)-1, spread(latency)),
	}, nil
}
