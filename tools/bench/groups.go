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

// The numbers of the instances, in the order of the groups of newGroupRig.
const (
	byHTTP    = 1
	byProcess = 2
)

// The targets of the scenario. The lane of a burst must move to the other instance within a minute and one poll of that
// instance. While it moves, it must stand still for at most two seconds. A holder must see a message of another process
// within a second.
const (
	moveLimit  = 65   // s
	standLimit = 2000 // ms
	seenLimit  = 1000 // ms
)

// runGroups measures the groups of Flex Consumption: one instance runs the HTTP functions, and one runs the function
// named "process". It measures how the lane of a burst moves from the http instance to the process instance. It also
// measures how long messages take to the CMS, by the instance that sends them, with a due time and without.
func runGroups(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, measure := range []func(context.Context, *bench) ([]result, error){
		measureGroupBurst, measureGroupTrickle, measureGroupDue,
	} {
		more, err := measure(ctx, b)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// newGroupRig returns a rig with the two instances and one lane. With one lane a fence belongs to one instance.
func newGroupRig(ctx context.Context, b *bench, latency time.Duration) (*rig, error) {
	all := []host.Group{{Name: "http", Instances: 1}, {Name: host.GroupName("process"), Instances: 1}}
	return b.newWarmRig(ctx, rigOptions{latency: latency, groups: all, senders: &senderLog{by: map[int64]int{}}})
}

// senderLog records which instance sent under which fence. It reads the handlers' lines in the host's output.
type senderLog struct {
	mu sync.Mutex
	by map[int64]int // number of the instance, by fence
}

var attemptLine = regexp.MustCompile(`^\[(\d+)\] .*"msg":"drain: attempt".*"fence":(\d+)`)

// Write implements io.Writer. Each call must have one line, as the host's calls do.
func (s *senderLog) Write(line []byte) (int, error) {
	if m := attemptLine.FindSubmatch(line); m != nil {
		instance, _ := strconv.Atoi(string(m[1])) // the expression matches digits only
		fence, _ := strconv.ParseInt(string(m[2]), 10, 64)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.by[fence] = instance
	}
	return len(line), nil
}

// requestsOfInstance returns the requests that the CMS got from one instance, the earliest request first.
func requestsOfInstance(r *rig, instance int) []server.Request {
	r.senders.mu.Lock()
	defer r.senders.mu.Unlock()
	requests := slices.DeleteFunc(r.cms.Requests(),
		func(q server.Request) bool { return r.senders.by[q.Fence] != instance })
	slices.SortFunc(requests, func(a, b server.Request) int { return a.StartedAt.Compare(b.StartedAt) })
	return requests
}

// measureGroupBurst posts a burst to the http instance and measures when the process instance takes the lane over.
func measureGroupBurst(ctx context.Context, b *bench) ([]result, error) {
	r, err := newGroupRig(ctx, b, cmsLatency)
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	n := b.sizes.groups.burst
	if err := r.sendMessages(ctx, makeMessages("group", n, b.sizes.load.keys), b.sizes.load.clients,
		r.receiveURL()); err != nil {
		return nil, err
	}
	if err := r.awaitCleanDelivery(ctx, n); err != nil {
		return nil, err
	}
	here, there := requestsOfInstance(r, byHTTP), requestsOfInstance(r, byProcess)
	if len(here) == 0 {
		return nil, fmt.Errorf("of a burst of %d messages the process instance sent %d and the http instance none", n,
			len(there))
	}
	if len(there) == 0 {
		lasted := lastBefore(here, time.Now()).Sub(here[0].StartedAt)
		return []result{newRow("groups: until process holds the lane of a burst", "s", lasted.Seconds()).
			setVerdict(false, moveLimit, "value <= %d",
				moveLimit).withNote("it never did: the http instance sent all %d messages", n)}, nil
	}
	moved := there[0].StartedAt.Sub(here[0].StartedAt)
	stood := there[0].StartedAt.Sub(lastBefore(here, there[0].StartedAt))
	return []result{
		newRow("groups: until process holds the lane of a burst", "s", moved.Seconds()).limitValue(moveLimit).
			withNote("from the first request; %d of %d messages were sent by the http instance, none twice", len(here),
				n),
		newRow("groups: the lane's standstill when it moves", "ms", milliseconds(stood)).limitValue(standLimit),
	}, nil
}

// lastBefore looks at the requests that began before the time "at", and returns when the last of them ended.
func lastBefore(requests []server.Request, at time.Time) (ended time.Time) {
	for _, q := range requests {
		if q.StartedAt.Before(at) {
			ended = laterOf(ended, q.EndedAt)
		}
	}
	return ended
}

// measureGroupTrickle posts single messages to the http instance. It posts each of the first ones only after the holder
// has released the lane. Then it posts a burst, which moves the lane to the process instance, and more single messages
// after the burst. The lane stays at the process instance.
func measureGroupTrickle(ctx context.Context, b *bench) ([]result, error) {
	r, err := newGroupRig(ctx, b, cmsLatency)
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	f := r.newFlow()
	for range b.sizes.idle.wakes {
		if err := f.postNext(ctx, r.receiveURL()); err != nil {
			return nil, err
		}
		if err := f.awaitEnd(ctx); err != nil {
			return nil, err
		}
	}
	burst := b.sizes.groups.burst / 4
	if err := r.sendMessages(ctx, makeMessages("group", burst, b.sizes.load.keys), b.sizes.load.clients,
		r.receiveURL()); err != nil {
		return nil, err
	}
	behind := int(time.Second / streamGap) // number of posts in one second, which the holder may not have read
	if err := f.streamUntil(ctx, r.receiveURL(),
		func() bool { return r.cms.Stats().Writes >= burst+f.number-behind }); err != nil {
		return nil, err
	}
	from := time.Now()
	if err := f.streamUntil(ctx, r.receiveURL(),
		func() bool { return len(f.latenciesBy(byProcess, from)) >= b.sizes.groups.flow }); err != nil {
		return nil, err
	}
	if err := r.awaitCleanDelivery(ctx, burst+f.number); err != nil {
		return nil, err
	}
	return []result{
		f.groupRow("the http instance holds the lane", f.latenciesBy(byHTTP, time.Time{})),
		f.groupRow("process holds the lane", f.latenciesBy(byProcess, from)).limitValue(seenLimit),
	}, nil
}

// latenciesBy returns latencies in ms: the time from a message's post to the beginning of its request at the CMS. It
// takes only those messages of f that were posted after the time "from" and that one instance sent.
func (f *trickleFlow) latenciesBy(instance int, from time.Time) (out []float64) {
	for _, q := range requestsOfInstance(f.rig, instance) {
		if sent, isOurs := f.sent[message{q.Path, q.Version}]; isOurs && sent.After(from) {
			out = append(out, milliseconds(q.StartedAt.Sub(sent)))
		}
	}
	return out
}

func (f *trickleFlow) groupRow(name string, latencies []float64) result {
	return newRow("groups: accept to CMS p99, "+name, "ms",
		percentile(latencies, 0.99)).withNote("from the sending: %s", describeSpread(latencies))
}

// measureGroupDue posts messages with due times to the http instance in two rigs. In the first rig it posts nothing
// else. In the second it also posts a burst, which moves the lane to the process instance.
func measureGroupDue(ctx context.Context, b *bench) ([]result, error) {
	alone, err := measureGroupLateness(ctx, b, "alone", false)
	if err != nil {
		return nil, err
	}
	beside, err := measureGroupLateness(ctx, b, "process holds the lane", true)
	return []result{alone, beside}, err
}

// measureGroupLateness measures the lateness of messages with due times. If "busy" is true, it also posts a burst
// before the due times, and single messages until the last due time.
func measureGroupLateness(ctx context.Context, b *bench, name string, busy bool) (row result, err error) {
	r, err := newGroupRig(ctx, b, cmsLatency)
	if err != nil {
		return row, err
	}
	defer r.shutDown()
	first, others := time.Now().Add(b.sizes.due.lead), 0
	if busy { // the burst, which moves the lane, is delivered before the first message is due
		others = b.sizes.groups.burst / 4
		first = first.Add(2 * time.Duration(others) * cmsLatency)
	}
	a := spreadDueTimes("due", b.sizes.groups.due, first, b.sizes.due.span)
	if err := postDueMessages(ctx, r, a); err != nil {
		return row, err
	}
	f := r.newFlow()
	if busy {
		if err := r.sendMessages(ctx, makeMessages("group", others, b.sizes.load.keys), b.sizes.load.clients,
			r.receiveURL()); err != nil {
			return row, err
		}
		last := first.Add(b.sizes.due.span)
		if err := f.streamUntil(ctx, r.receiveURL(), func() bool { return time.Now().After(last) }); err != nil {
			return row, err
		}
		others += f.number
	}
	if err := r.awaitCleanDelivery(ctx, len(a)+others); err != nil {
		return row, err
	}
	here, err1 := latenessOf(requestsOfInstance(r, byHTTP), a)
	there, err2 := latenessOf(requestsOfInstance(r, byProcess), a)
	all := slices.Concat(here, there)
	return newRow("groups: lateness p99 of due messages, "+name, "ms", percentile(all, 0.99)).
			withNote("%s; %d were sent by the http instance, %d by process", describeSpread(all), len(here),
				len(there)),
		errors.Join(err1, err2)
}

// latenessOf returns, in ms, the lateness of those requests whose messages are in a. A request before the due time is
// an error.
func latenessOf(requests []server.Request, a dueTimes) (late []float64, err error) {
	for _, q := range requests {
		due, hasDue := a[message{q.Path, q.Version}]
		if !hasDue {
			continue
		}
		if q.StartedAt.Before(due) {
			err = errors.Join(err, fmt.Errorf("%s came %s early", q.Path, due.Sub(q.StartedAt)))
		}
		late = append(late, milliseconds(q.StartedAt.Sub(due)))
	}
	return late, err
}
