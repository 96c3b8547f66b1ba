package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/tools/democms/server"
)

const (
	serialTransactions = "transactions per message, serial burst"

	cmsLatency = 20 * time.Millisecond
	burstLimit = 5 * time.Minute
)

// messages makes n messages over a number of keys.
func messages(space string, n, keys int) []message {
	out := make([]message, n)
	for i := range out {
		out[i] = message{fmt.Sprintf("/%s/%d", space, i%keys), i/keys + 1}
	}
	return out
}

// send posts messages from many clients at once. A key belongs to one client, so that its
// versions are accepted in order and an inversion at the CMS would be ours.
func (r *rig) send(ctx context.Context, all []message, clients int, urls ...string) error {
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
				if err := post(ctx, r.client, urls[n%len(urls)], m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// receive is the address of the function behind the host.
func (r *rig) receive() string { return r.host.URL() + "/api/messages" }

// direct are the addresses of the function on each instance's handler itself.
func (r *rig) direct() []string {
	var urls []string
	for _, i := range r.host.Status().Instances {
		if i.PID != 0 {
			urls = append(urls, at(i)+"/api/messages")
		}
	}
	return urls
}

// delivered waits until the CMS has taken n writes.
func (r *rig) delivered(ctx context.Context, n int) error {
	return r.until(ctx, burstLimit, fmt.Sprintf("the CMS has %d writes", n), func() bool { return r.cms.Stats().Writes >= n })
}

// warm sends messages through everything, waits for rest, and clears the CMS's record:
// connections are made and the emulator's code is compiled.
func (r *rig) warm(ctx context.Context) error {
	if err := r.send(ctx, messages("warm", r.sizes.warm, 20), 16, r.receive()); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	r.cms.Reset()
	return nil
}

// burst is what one came to.
type burst struct {
	elapsed float64 // s, from the first post sent to the last write ended
	filed   float64 // s, until the last was accepted
	trip    float64 // ms, bare round trip to the CMS
	writers float64 // at work at the CMS, on average from its first request to its last
	used    map[string]float64
}

// burst sends messages at once and waits until all is delivered and at rest. Round trips
// are measured before and after, so that the machine's mood counts for both.
func (r *rig) burst(ctx context.Context, all []message) (burst, error) {
	var b burst
	before, err := r.trips(ctx, r.sizes.trips)
	if err != nil {
		return b, err
	}
	used, err := r.transactions(ctx)
	if err != nil {
		return b, err
	}
	began := time.Now()
	if err := r.send(ctx, all, r.sizes.clients, r.receive()); err != nil {
		return b, err
	}
	b.filed = time.Since(began).Seconds()
	if err := r.delivered(ctx, len(all)); err != nil {
		return b, err
	}
	if err := r.atRest(ctx, burstLimit); err != nil {
		return b, err
	}
	for _, req := range r.cms.Requests() {
		b.elapsed = max(b.elapsed, req.EndedAt.Sub(began).Seconds())
	}
	b.writers = busyWriters(r.cms.Requests())
	if err := r.clean(len(all)); err != nil {
		return b, err
	}
	if b.used, err = r.transactions(ctx); err != nil {
		return b, err
	}
	b.used = minus(b.used, used)
	after, err := r.trips(ctx, r.sizes.trips)
	b.trip = mean(append(before, after...))
	return b, err
}

// busyWriters returns how many requests were at work at a time, on average.
func busyWriters(requests []server.Request) float64 {
	var work time.Duration
	var from, until time.Time
	for _, req := range requests {
		work += req.EndedAt.Sub(req.StartedAt)
		if from.IsZero() || req.StartedAt.Before(from) {
			from = req.StartedAt
		}
		until = later(until, req.EndedAt)
	}
	return work.Seconds() / until.Sub(from).Seconds()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func minus(after, before map[string]float64) map[string]float64 {
	d := map[string]float64{}
	for name, v := range after {
		if v != before[name] {
			d[name] = v - before[name]
		}
	}
	return d
}

func total(counts map[string]float64) float64 {
	sum := 0.0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// shares shows transactions per message by operation, for a note.
func shares(counts map[string]float64, messages int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %.3f", name, counts[name]/float64(messages)))
	}
	return strings.Join(parts, ", ")
}

// serial is the burst on one lane.
func serial(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: cmsLatency})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	n := b.sizes.burst
	got, err := r.burst(ctx, messages("serial", n, b.sizes.keys))
	if err != nil {
		return nil, err
	}
	limit := float64(n) * got.trip / 1000
	return []result{
		measured("serial burst", "s", got.elapsed).shareOf(limit).atLeast(0.97).
			noted("%d messages, %d clients, bare round trip %.2f ms, all accepted after %.2f s", n, b.sizes.clients, got.trip, got.filed),
		measured(serialTransactions, "", total(got.used)/float64(n)).atMost(0.5).noted("%s", shares(got.used, n)),
	}, nil
}

// lanes is the same burst on eight lanes: the fullest bounds it.
func lanes(ctx context.Context, b *bench) ([]result, error) {
	const count = 8
	r, err := b.newRig(ctx, setup{latency: cmsLatency, lanes: count})
	if err != nil {
		return nil, err
	}
	defer r.close()
	if err := r.warm(ctx); err != nil {
		return nil, err
	}
	all := messages("lanes", b.sizes.burst, b.sizes.keys)
	got, err := r.burst(ctx, all)
	if err != nil {
		return nil, err
	}
	in := make([]int, count)
	for _, m := range all {
		in[lane.Of(m.path, count)]++
	}
	fullest := slices.Max(in)
	return []result{
		measured("burst on 8 lanes", "s", got.elapsed).shareOf(float64(fullest)*got.trip/1000).atLeast(0.92).
			noted("%d of %d messages in the fullest lane, bare round trip %.2f ms, all accepted after %.2f s; %.3f transactions per message",
				fullest, len(all), got.trip, got.filed, total(got.used)/float64(len(all))),
		measured("burst on 8 lanes: writers busy", "", got.writers).against(float64(len(all)) / float64(fullest)).valueAtLeast(5).
			noted("on average from the first request to the last; the yardstick is all messages over those of the fullest lane"),
	}, nil
}
