package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/democms"
	"weir/internal/lane"
)

const (
	serialTransactions = "transactions per message, serial burst" // name of a result

	cmsLatency = 20 * time.Millisecond
	burstLimit = 5 * time.Minute // longest wait for deliveries, and for idle lanes
)

// makeMessages returns n messages with the given number of keys. Each key begins with "/" and the
// argument "space". The versions of each key count from 1.
func makeMessages(space string, n, keys int) []message {
	out := make([]message, n)
	for i := range out {
		out[i] = message{fmt.Sprintf("/%s/%d", space, i%keys), i/keys + 1}
	}
	return out
}

// sendMessages posts messages from concurrent clients. Each client posts to one of the addresses.
// All messages of a key come from one client. So Weir accepts a key's versions in order, and a
// wrong order at the CMS is an error of Weir.
func (r *rig) sendMessages(ctx context.Context, all []message, clients int, urls ...string) error {
	shares := make([][]message, clients)
	owner := map[string]int{}
	for _, m := range all {
		if _, ok := owner[m.path]; !ok {
			owner[m.path] = len(owner) % clients
		}
		shares[owner[m.path]] = append(shares[owner[m.path]], m)
	}

	group, ctx := errgroup.WithContext(ctx)
	for n, share := range shares {
		group.Go(func() error {
			for _, m := range share {
				if err := postMessage(ctx, r.client, urls[n%len(urls)], m); err != nil {
					return err
				}
			}
			return nil
		})
	}

	return group.Wait()
}

// receiveURL returns the host's address of functions/receive.
func (r *rig) receiveURL() string { return r.host.URL() + "/api/messages" }

// handlerURLs returns, for each running handler, an address of functions/receive that does not lead
// through the host.
func (r *rig) handlerURLs() []string {
	var urls []string
	for _, i := range r.host.Status().Instances {
		if i.PID != 0 {
			urls = append(urls, handlerURL(i)+"/api/messages")
		}
	}
	return urls
}

// awaitDelivered waits until the CMS's record has at least n writes.
func (r *rig) awaitDelivered(ctx context.Context, n int) error {
	return r.awaitCondition(ctx, burstLimit, fmt.Sprintf("the CMS has %d writes", n),
		func() bool { return r.cms.Stats().Writes >= n })
}

// warmUp posts messages, waits until the lanes are idle, and clears the CMS's record. These
// messages open all connections and make Azurite compile its code.
func (r *rig) warmUp(ctx context.Context) error {
	if err := r.sendMessages(ctx, makeMessages("warm", r.sizes.load.warm, 20), 16, r.receiveURL()); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}

	if err := r.awaitRest(ctx); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}

	r.cms.Reset()
	return nil
}

type burstFigures struct {
	// time in s, from the start of the first post to the end of the last write
	elapsed float64
	// time in s, from the start of the first post until all messages were accepted
	filed float64
	trip  float64 // mean time of a post to the CMS without Weir, in ms
	// average number of concurrent requests at the CMS, from the first request to the last
	writers float64
	used    map[string]float64 // number of requests to storage, by service and operation
}

// runBurst posts messages from many clients to the addresses (none = the host's) and waits until
// the lanes are idle. For the baseline it measures posts to the CMS without Weir. It does so before
// the burst and after it, so that a change of the machine's load affects the baseline and the burst
// alike.
func (r *rig) runBurst(ctx context.Context, all []message, urls ...string) (burstFigures, error) {
	var b burstFigures
	if len(urls) == 0 {
		urls = []string{r.receiveURL()}
	}

	before, err := r.measureTrips(ctx, r.sizes.load.trips)
	if err != nil {
		return b, err
	}

	used, err := r.readTransactions(ctx)
	if err != nil {
		return b, err
	}

	began := time.Now()
	if err := r.sendMessages(ctx, all, r.sizes.load.clients, urls...); err != nil {
		return b, err
	}

	b.filed = time.Since(began).Seconds()
	if err := r.awaitDelivered(ctx, len(all)); err != nil {
		return b, err
	}

	if err := r.awaitRest(ctx); err != nil {
		return b, err
	}

	for _, req := range r.cms.Requests() {
		b.elapsed = max(b.elapsed, req.EndedAt.Sub(began).Seconds())
	}

	b.writers = busyWriters(r.cms.Requests())
	if err := r.checkRecord(len(all)); err != nil {
		return b, err
	}

	if b.used, err = r.readTransactions(ctx); err != nil {
		return b, err
	}

	b.used = subtractCounts(b.used, used)
	after, err := r.measureTrips(ctx, r.sizes.load.trips)
	b.trip = mean(append(before, after...))

	return b, err
}

// busyWriters returns the average number of concurrent requests at the CMS, from the start of the
// first request to the end of the last one.
func busyWriters(requests []democms.Request) float64 {
	var work time.Duration
	var from, until time.Time
	for _, req := range requests {
		work += req.EndedAt.Sub(req.StartedAt)
		if from.IsZero() || req.StartedAt.Before(from) {
			from = req.StartedAt
		}
		until = laterOf(until, req.EndedAt)
	}

	return work.Seconds() / until.Sub(from).Seconds()
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func subtractCounts(after, before map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for name, v := range after {
		if v != before[name] {
			d[name] = v - before[name]
		}
	}
	return d
}

func sumCounts(counts map[string]float64) float64 {
	sum := 0.0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// describeShares returns each count divided by n, as text for a note: for instance each operation's
// transactions per message.
func describeShares(counts map[string]float64, n int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %.3f", name, counts[name]/float64(n)))
	}
	return strings.Join(parts, ", ")
}

// runSerial measures a burst on one lane.
func runSerial(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{latency: cmsLatency})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n := b.sizes.load.burst
	got, err := r.runBurst(ctx, makeMessages("serial", n, b.sizes.load.keys))
	if err != nil {
		return nil, err
	}

	limit := float64(n) * got.trip / 1000

	return []result{
		newRow("serial burst", "s", got.elapsed).withLeast(limit).requireRatio(0.97).
			withNote("%d messages, %d clients, bare round trip %.2f ms, all accepted after %.2f s",
				n, b.sizes.load.clients, got.trip, got.filed),
		newRow(serialTransactions, "", sumCounts(got.used)/float64(n)).limitValue(0.5).withNote("%s",
			describeShares(got.used, n)),
	}, nil
}

// runLanes measures a burst on eight lanes. The lane with the most messages sets the baseline,
// because a lane sends one message at a time.
func runLanes(ctx context.Context, b *bench) ([]result, error) {
	const count = 8
	r, err := b.newWarmRig(ctx, rigOptions{latency: cmsLatency, lanes: count})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	all := makeMessages("lanes", b.sizes.load.burst, b.sizes.load.keys)
	got, err := r.runBurst(ctx, all)
	if err != nil {
		return nil, err
	}

	in := make([]int, count)
	for _, m := range all {
		in[lane.Of(m.path, count)]++
	}

	fullest := slices.Max(in)

	return []result{
		newRow("burst on 8 lanes", "s", got.elapsed).withLeast(float64(fullest)*got.trip/1000).requireRatio(0.92).
			withNote("%d of %d messages in the fullest lane, bare round trip %.2f ms, all accepted after %.2f s; "+
				"%.3f transactions per message",
				fullest, len(all), got.trip, got.filed, sumCounts(got.used)/float64(len(all))),
		newRow("burst on 8 lanes: writers busy", "",
			got.writers).withBaseline(float64(len(all)) / float64(fullest)).requireValue(5).
			withNote("on average from the first request to the last; the yardstick is all messages over those of the " +
				"fullest lane"),
	}, nil
}
