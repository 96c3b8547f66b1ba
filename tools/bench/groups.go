package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"weir/tools/democms/server"
	"weir/tools/funchost/host"
)

// Instances by number, in the order of the groups of newGroupRig.
const (
	byHTTP    = 1
	byProcess = 2
)

// Bounds of groups: the lane of a burst moves within a minute and the poll of the other instance, and
// stands still for two seconds meanwhile. A holder sees what others filed within a second.
const (
	moveLimit  = 65   // s
	standLimit = 2000 // ms
	seenLimit  = 1000 // ms
)

// groups measures Flex Consumption's groups, HTTP and process on an instance each: how a burst that was
// posted to the one moves to the other, and how soon messages, also those with a due time, come to the
// CMS from each.
func groups(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, measure := range []func(context.Context) ([]result, error){b.groupBurst, b.groupTrickle, b.groupDue} {
		more, err := measure(ctx)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// newGroupRig has one lane, so that a fence belongs to one instance.
func (b *bench) newGroupRig(ctx context.Context, latency time.Duration) (*rig, error) {
	all := []host.Group{{Name: "http", Instances: 1}, {Name: host.GroupName("process"), Instances: 1}}
	r, err := b.newRig(ctx, setup{latency: latency, groups: all, senders: &senders{by: map[int64]int{}}})
	if err != nil {
		return nil, err
	}
	if err := r.warm(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// senders notes which instance sent under which fence, by the handlers' lines in the host's output.
type senders struct {
	mu sync.Mutex
	by map[int64]int
}

var attemptLine = regexp.MustCompile(`^\[(\d+)\] .*"msg":"drain: attempt".*"fence":(\d+)`)

// Write implements io.Writer: the host writes line by line.
func (s *senders) Write(line []byte) (int, error) {
	if m := attemptLine.FindSubmatch(line); m != nil {
		instance, _ := strconv.Atoi(string(m[1])) // digits
		fence, _ := strconv.ParseInt(string(m[2]), 10, 64)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.by[fence] = instance
	}
	return len(line), nil
}

// sentBy returns the CMS's requests that an instance made, in order of time.
func (r *rig) sentBy(instance int) []server.Request {
	r.senders.mu.Lock()
	defer r.senders.mu.Unlock()
	requests := slices.DeleteFunc(r.cms.Requests(), func(q server.Request) bool { return r.senders.by[q.Fence] != instance })
	slices.SortFunc(requests, func(a, b server.Request) int { return a.StartedAt.Compare(b.StartedAt) })
	return requests
}

// groupBurst posts a burst to the http instance and sees when the process instance takes it over.
func (b *bench) groupBurst(ctx context.Context) ([]result, error) {
	r, err := b.newGroupRig(ctx, cmsLatency)
	if err != nil {
		return nil, err
	}
	defer r.close()
	n := b.sizes.groupBurst
	if err := r.send(ctx, messages("group", n, b.sizes.keys), b.sizes.clients, r.receive()); err != nil {
		return nil, err
	}
	if err := r.delivered(ctx, n); err != nil {
		return nil, err
	}
	if err := errors.Join(r.atRest(ctx, burstLimit), r.clean(n)); err != nil {
		return nil, err
	}
	here, there := r.sentBy(byHTTP), r.sentBy(byProcess)
	if len(here) == 0 {
		return nil, fmt.Errorf("of a burst of %d messages process sent %d, and the http instance none", n, len(there))
	}
	if len(there) == 0 {
		lasted := lastBefore(here, time.Now()).Sub(here[0].StartedAt)
		return []result{measured("groups: until process holds the lane of a burst", "s", lasted.Seconds()).
			judged(false, moveLimit, "value <= %d", moveLimit).noted("it never did: the http instance sent all %d messages", n)}, nil
	}
	moved := there[0].StartedAt.Sub(here[0].StartedAt)
	stood := there[0].StartedAt.Sub(lastBefore(here, there[0].StartedAt))
	return []result{
		measured("groups: until process holds the lane of a burst", "s", moved.Seconds()).atMost(moveLimit).
			noted("from the first request; %d of %d messages were sent by the http instance, none twice", len(here), n),
		measured("groups: the lane's standstill when it moves", "ms", ms(stood)).atMost(standLimit),
	}, nil
}

// lastBefore returns when the last request that had begun before a moment ended.
func lastBefore(requests []server.Request, at time.Time) (ended time.Time) {
	for _, q := range requests {
		if q.StartedAt.Before(at) {
			ended = later(ended, q.EndedAt)
		}
	}
	return ended
}

// groupTrickle posts to the http instance: first one by one, each after the lane was released, and then
// behind a burst that moves the lane to the process instance, where it stays.
func (b *bench) groupTrickle(ctx context.Context) ([]result, error) {
	r, err := b.newGroupRig(ctx, cmsLatency)
	if err != nil {
		return nil, err
	}
	defer r.close()
	f := r.newFlow()
	for range b.sizes.wakes {
		if err := f.post(ctx, r.receive()); err != nil {
			return nil, err
		}
		if err := f.end(ctx); err != nil {
			return nil, err
		}
	}
	burst := b.sizes.groupBurst / 4
	if err := r.send(ctx, messages("group", burst, b.sizes.keys), b.sizes.clients, r.receive()); err != nil {
		return nil, err
	}
	behind := int(time.Second / streamGap) // what comes while the holder has not looked yet
	if err := f.streamUntil(ctx, r.receive(), func() bool { return r.cms.Stats().Writes >= burst+f.number-behind }); err != nil {
		return nil, err
	}
	from := time.Now()
	if err := f.streamUntil(ctx, r.receive(), func() bool { return len(f.latenciesBy(byProcess, from)) >= b.sizes.groupFlow }); err != nil {
		return nil, err
	}
	if err := r.delivered(ctx, burst+f.number); err != nil {
		return nil, err
	}
	if err := errors.Join(r.atRest(ctx, burstLimit), r.clean(burst+f.number)); err != nil {
		return nil, err
	}
	return []result{
		f.groupRow("the http instance holds the lane", f.latenciesBy(byHTTP, time.Time{})),
		f.groupRow("process holds the lane", f.latenciesBy(byProcess, from)).atMost(seenLimit),
	}, nil
}

// latenciesBy returns the times from the sending of messages to the CMS, in ms: of those that were sent
// after a moment, and reached the CMS from one instance.
func (f *flow) latenciesBy(instance int, from time.Time) (out []float64) {
	for _, q := range f.sentBy(instance) {
		if sent, isOurs := f.sent[message{q.Path, q.Version}]; isOurs && sent.After(from) {
			out = append(out, ms(q.StartedAt.Sub(sent)))
		}
	}
	return out
}

func (f *flow) groupRow(name string, latencies []float64) result {
	return measured("groups: accept to CMS p99, "+name, "ms", percentile(latencies, 0.99)).noted("from the sending: %s", spread(latencies))
}

// groupDue files messages with due times on the http instance: alone, and beside so many others that the
// process instance holds the lane.
func (b *bench) groupDue(ctx context.Context) ([]result, error) {
	alone, err := b.groupLateness(ctx, "alone", false)
	if err != nil {
		return nil, err
	}
	beside, err := b.groupLateness(ctx, "process holds the lane", true)
	return []result{alone, beside}, err
}

func (b *bench) groupLateness(ctx context.Context, name string, busy bool) (row result, err error) {
	r, err := b.newGroupRig(ctx, cmsLatency)
	if err != nil {
		return row, err
	}
	defer r.close()
	first, others := time.Now().Add(b.sizes.dueLead), 0
	if busy { // the burst, which moves the lane, is over before the first is due
		others = b.sizes.groupBurst / 4
		first = first.Add(2 * time.Duration(others) * cmsLatency)
	}
	a := appoint("due", b.sizes.groupDue, first, b.sizes.dueSpan)
	if err := r.book(ctx, a); err != nil {
		return row, err
	}
	f := r.newFlow()
	if busy {
		if err := r.send(ctx, messages("group", others, b.sizes.keys), b.sizes.clients, r.receive()); err != nil {
			return row, err
		}
		last := first.Add(b.sizes.dueSpan)
		if err := f.streamUntil(ctx, r.receive(), func() bool { return time.Now().After(last) }); err != nil {
			return row, err
		}
		others += f.number
	}
	if err := r.delivered(ctx, len(a)+others); err != nil {
		return row, err
	}
	if err := errors.Join(r.atRest(ctx, burstLimit), r.clean(len(a)+others)); err != nil {
		return row, err
	}
	here, err1 := latenessOf(r.sentBy(byHTTP), a)
	there, err2 := latenessOf(r.sentBy(byProcess), a)
	all := slices.Concat(here, there)
	return measured("groups: lateness p99 of due messages, "+name, "ms", percentile(all, 0.99)).
		noted("%s; %d were sent by the http instance, %d by process", spread(all), len(here), len(there)), errors.Join(err1, err2)
}

// latenessOf is lateness for those of a number of requests that had an appointment.
func latenessOf(requests []server.Request, a appointments) (late []float64, err error) {
	for _, q := range requests {
		due, booked := a[message{q.Path, q.Version}]
		if !booked {
			continue
		}
		if q.StartedAt.Before(due) {
			err = errors.Join(err, fmt.Errorf("%s came %s early", q.Path, due.Sub(q.StartedAt)))
		}
		late = append(late, ms(q.StartedAt.Sub(due)))
	}
	return late, err
}
