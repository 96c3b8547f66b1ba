package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/weir"
	"weir/tools/democms/server"
)

// crowdSizes are the sizes of the scenarios in which many messages come together: at one moment,
// behind one key, on many lanes.
type crowdSizes struct {
	dueRates      []int         // a second
	dueSpan       time.Duration // from the first to the last
	moments       []int         // messages due at one moment
	momentLead    time.Duration // until then, for filing all
	schedules     int           // of one second each
	schedulesSpan time.Duration
	refused, good int           // messages
	behind        int           // messages behind a blocked key
	large         int           // messages of largeBody due at one moment
	largeLead     time.Duration // until then
	oldLanes, old int           // lanes for retention, and old messages in each
	sweptLanes    int
	sweptOld      int // old messages in each of them
	busyLanes     int
	busyInstances []int
	busySpan      time.Duration
	hungPosts     int
	hungSpan      time.Duration // from the first of them to the last
	hungFlow      time.Duration // of messages before one request hangs, and after
	heavyPosts    int           // at a time
	searched      int           // messages of searchedBody
	searches      int           // at a time
	hungLarge     int           // posts of a megabyte while storage hangs
	waits         int           // answers held at a time
	waitSpan      time.Duration
	states        int // status reads in a backlog
	stateBacklog  int
}

var fullCrowds = crowdSizes{dueRates: []int{10, 20}, dueSpan: 45 * time.Second, moments: []int{1000, 2000}, momentLead: 10 * time.Second,
	schedules: 300, schedulesSpan: 20 * time.Second, refused: 400, good: 50, behind: 20_000, large: 1000, largeLead: time.Minute,
	oldLanes: 8, old: 1000, sweptLanes: 256, sweptOld: 10, busyLanes: 64, busyInstances: []int{1, 4}, busySpan: 3 * time.Minute,
	hungPosts: 40, hungSpan: 10 * time.Second, hungFlow: 8 * time.Second,
	heavyPosts: 200, searched: 3000, searches: 40, hungLarge: 150, waits: 3000, waitSpan: 20 * time.Second, states: 300, stateBacklog: 1500}

// fillAtOnce files messages in whatever order, many in a transaction; change sees each first.
func fillAtOnce(ctx context.Context, store *lane.Store, all []message, atOnce int,
	change func(int, *weir.Message) (idempotencyKey string)) error {
	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, m := range all {
		group.Go(func() error {
			filed := weir.Message{Contract: "article", Key: m.path, Version: fmt.Sprint(m.version),
				ContentType: "application/xml", Body: []byte(m.body())}
			key := ""
			if change != nil {
				key = change(i, &filed)
			}
			_, err := appender.Append(ctx, filed, key)
			return err
		})
	}
	return group.Wait()
}

// pathsByLane returns so many paths in each lane, lane after lane.
func pathsByLane(space string, lanes, each int) []string {
	paths := make([][]string, lanes)
	for i, missing := 0, lanes*each; missing > 0; i++ {
		path := fmt.Sprintf("/%s/%d", space, i)
		if n := lane.Of(path, lanes); len(paths[n]) < each {
			paths[n] = append(paths[n], path)
			missing--
		}
	}
	return slices.Concat(paths...)
}

// besideGap is the pause between two plain messages beside a lane's other work.
const besideGap = 250 * time.Millisecond

// beside posts plain messages beside other work in their lane.
type beside struct {
	*flow
	stop context.CancelFunc
	work sync.WaitGroup
	err  error
}

// postBeside begins to post plain messages.
func (r *rig) postBeside(ctx context.Context) *beside {
	b := &beside{flow: r.newFlow()}
	ctx, b.stop = context.WithCancel(ctx)
	b.work.Go(func() {
		for b.err == nil && pause(ctx, besideGap) {
			b.err = b.post(context.WithoutCancel(ctx), r.receive())
		}
	})
	return b
}

// end stops the posts. It may be called twice.
func (b *beside) end() error {
	b.stop()
	b.work.Wait()
	return b.err
}

// lags returns, in ms, how long after its sending each plain message's request began at the CMS.
func (b *beside) lags(requests []server.Request) []float64 {
	var lags []float64
	for _, req := range requests {
		if sent, ok := b.sent[message{req.Path, req.Version}]; ok {
			lags = append(lags, ms(req.StartedAt.Sub(sent)))
		}
	}
	return lags
}

// within returns the requests that began in a span, in the order of their beginnings.
func within(requests []server.Request, from, until time.Time) []server.Request {
	in := slices.DeleteFunc(slices.Clone(requests), func(r server.Request) bool { return r.StartedAt.Before(from) || r.StartedAt.After(until) })
	slices.SortFunc(in, func(a, b server.Request) int { return a.StartedAt.Compare(b.StartedAt) })
	return in
}

// standstill returns the longest time within a span in which no request began at the CMS.
func standstill(requests []server.Request, from, until time.Time) time.Duration {
	longest, before := time.Duration(0), from
	for _, req := range within(requests, from, until) {
		longest, before = max(longest, req.StartedAt.Sub(before)), req.StartedAt
	}
	return max(longest, until.Sub(before))
}
