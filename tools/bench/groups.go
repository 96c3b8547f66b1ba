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

	"weir/internal/democms"
	"weir/tools/funchost/host"
)

// The numbers of the instances that newGroupRig starts. The first instance runs the HTTP functions,
// the second one runs functions/process.
const (
	byHTTP    = 1
	byProcess = 2
)

// Targets of runGroups.
const (
	moveLimit  = 65   // seconds until the process instance takes the lane of a burst
	standLimit = 2000 // milliseconds without a request at the CMS while the lane moves
	// milliseconds from a post at the http instance until the process instance sends the message
	seenLimit = 1000
)

// runGroups measures the function groups of the plan Flex Consumption. One instance runs the HTTP
// functions (http), and one runs functions/process (process). The measurements are:
//   - the move of a burst's lane from the http instance to the process instance
//   - the time from a message's post to the start of its request at the CMS, for each instance as
//     the holder
//   - the lateness of messages with due times
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

// newGroupRig returns an installation of Weir with the two instances and one lane. With one lane,
// each fence belongs to exactly one instance, so senderLog can find the sender of each request.
func newGroupRig(ctx context.Context, b *bench, latency time.Duration) (*rig, error) {
	all := []host.Group{{Name: "http", Instances: 1},
		{Name: host.GroupName("process"), Instances: 1}}
	return b.newWarmRig(ctx, rigOptions{latency: latency, groups: all,
		senders: &senderLog{by: map[int64]int{}}})
}

// senderLog records, for each fence, the instance that sent messages to the CMS. It reads the
// handlers' log lines in the host's output.
type senderLog struct {
	mu sync.Mutex
	by map[int64]int // number of the instance by fence
}

var attemptLine = regexp.MustCompile(`^\[(\d+)\] .*"msg":"drain: attempt".*"fence":(\d+)`)

// Write implements io.Writer. Each call must have exactly one line.
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

// requestsOfInstance returns the requests that the CMS got from one instance. The earliest request
// comes first.
func requestsOfInstance(r *rig, instance int) []democms.Request {
	r.senders.mu.Lock()
	defer r.senders.mu.Unlock()
	requests := slices.DeleteFunc(r.cms.Requests(),
		func(q democms.Request) bool { return r.senders.by[q.Fence] != instance })
	slices.SortFunc(requests, func(a, b democms.Request) int { return a.StartedAt.Compare(b.StartedAt) })
	return requests
}

// measureGroupBurst posts a burst to the http instance and measures when the process instance takes
// the lane over.
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
		return nil, fmt.Errorf(
			"of a burst of %d messages the process instance sent %d and the http instance none", n,
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
		newRow("groups: the lane's standstill when it moves", "ms", milliseconds(stood)).limitValue(
			standLimit),
	}, nil
}

// lastBefore returns the latest end of the requests that began before the time "at".
func lastBefore(requests []democms.Request, at time.Time) (ended time.Time) {
	for _, q := range requests {
		if q.StartedAt.Before(at) {
			ended = laterOf(ended, q.EndedAt)
		}
	}
	return ended
}

// measureGroupTrickle posts single messages to the http instance in two phases. In the first phase
// the http instance holds the lane for each message, and releases the lane before the next message.
// Then a burst moves the lane to the process instance, which holds the lane in the second phase.
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
	if err := r.sendMessages(ctx, makeMessages("group", burst, b.sizes.load.keys),
		b.sizes.load.clients, r.receiveURL()); err != nil {
		return nil, err
	}

	// posts of one second, which the holder has perhaps not read yet
	behind := int(time.Second / streamGap)
	if err := f.streamUntil(ctx, r.receiveURL(),
		func() bool { return r.cms.Stats().Writes >= burst+f.number-behind }); err != nil {
		return nil, err
	}

	from := time.Now()
	if err := f.streamUntil(ctx, r.receiveURL(),
		func() bool { return len(f.latenciesBy(byProcess, from)) >= b.sizes.groups.flow }); err !=
		nil {
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

// latenciesBy returns, in ms, the times from a message's post to the start of its request at the
// CMS. It selects the messages of f that were posted after the time "from" and that the given
// instance sent.
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

// measureGroupDue measures messages with due times in two installations of Weir. In the first one
// it posts no other messages. In the second one it also posts a burst, which moves the lane to the
// process instance.
func measureGroupDue(ctx context.Context, b *bench) ([]result, error) {
	alone, err := measureGroupLateness(ctx, b, "alone", false)
	if err != nil {
		return nil, err
	}
	beside, err := measureGroupLateness(ctx, b, "process holds the lane", true)
	return []result{alone, beside}, err
}

// measureGroupLateness measures the lateness of messages with due times. If "busy" is true, it also
// posts a burst before the due times, and single messages until the last due time.
func measureGroupLateness(ctx context.Context, b *bench, name string, busy bool) (row result,
	err error) {
	r, err := newGroupRig(ctx, b, cmsLatency)
	if err != nil {
		return row, err
	}
	defer r.shutDown()
	first, others := time.Now().Add(b.sizes.due.lead), 0
	if busy { // leave time to deliver the burst before the first due time
		others = b.sizes.groups.burst / 4
		first = first.Add(2 * time.Duration(others) * cmsLatency)
	}

	a := spreadDueTimes("due", b.sizes.groups.due, first, b.sizes.due.span)
	if err := postDueMessages(ctx, r, a); err != nil {
		return row, err
	}

	f := r.newFlow()
	if busy {
		if err := r.sendMessages(ctx, makeMessages("group", others, b.sizes.load.keys),
			b.sizes.load.clients, r.receiveURL()); err != nil {
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
			withNote("%s; %d were sent by the http instance, %d by process",
				describeSpread(all), len(here), len(there)),
		errors.Join(err1, err2)
}

// latenessOf returns, in ms, the lateness of the requests whose messages are in "a". A request
// before the due time is an error.
func latenessOf(requests []democms.Request, a dueTimes) (late []float64, err error) {
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
