package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/democms"
	"weir/internal/lane"
	"weir/internal/weir"
)

// fillAtOnce appends messages without a handler, in no certain order. It appends up to atOnce
// messages concurrently, so that appends share transactions.
//
// If "change" is not nil, fillAtOnce calls it before each append, with the message's index in "all"
// and the message. The function change can alter the message, and returns the idempotency key, or
// "" for none. Calls of change are concurrent.
func fillAtOnce(ctx context.Context, store *lane.Store, all []message, atOnce int,
	change func(int, *weir.Message) (idempotencyKey string)) error {
	appender := lane.NewAppender(store, slog.New(slog.DiscardHandler))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)

	for i, m := range all {
		group.Go(func() error {
			filed := weir.Message{Contract: "article", Key: m.path, Version: fmt.Sprint(m.version),
				ContentType: "application/xml", Body: []byte(m.articleBody())}
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

// pathsByLane returns perLane paths for each lane: first those of lane 0, then those of lane 1, and
// so on.
func pathsByLane(space string, lanes, perLane int) []string {
	paths := make([][]string, lanes)
	for i, missing := 0, lanes*perLane; missing > 0; i++ {
		path := fmt.Sprintf("/%s/%d", space, i)
		if n := lane.Of(path, lanes); len(paths[n]) < perLane {
			paths[n] = append(paths[n], path)
			missing--
		}
	}

	return slices.Concat(paths...)
}

// besideGap is the pause between two posts of plainTraffic.
const besideGap = 250 * time.Millisecond

// plainTraffic posts plain messages, which have no due time, while the lane has other work.
type plainTraffic struct {
	*trickleFlow
	stop context.CancelFunc // ends the posts
	work sync.WaitGroup
	err  error // error of the failed post, if any; read it only after work.Wait
}

// startPlainTraffic starts to post plain messages in the background. The posts end at the first
// failed post.
func startPlainTraffic(ctx context.Context, r *rig) *plainTraffic {
	b := &plainTraffic{trickleFlow: r.newFlow()}
	ctx, b.stop = context.WithCancel(ctx)
	b.work.Go(func() {
		for b.err == nil && sleepFor(ctx, besideGap) {
			b.err = b.postNext(context.WithoutCancel(ctx), r.receiveURL())
		}
	})

	return b
}

// stopPosting ends the posts, and returns the error of the failed post, if any. It can be called
// more than once.
func (b *plainTraffic) stopPosting() error {
	b.stop()
	b.work.Wait()
	return b.err
}

// deliveryLags returns, in ms, a lag for each request that carries a plain message: the time from
// the message's post to the start of the request.
func (b *plainTraffic) deliveryLags(requests []democms.Request) []float64 {
	var lags []float64
	for _, req := range requests {
		if sent, ok := b.sent[message{req.Path, req.Version}]; ok {
			lags = append(lags, milliseconds(req.StartedAt.Sub(sent)))
		}
	}
	return lags
}

// requestsWithin returns the requests that began between "from" and "until", both inclusive. The
// earliest request comes first.
func requestsWithin(requests []democms.Request, from, until time.Time) []democms.Request {
	in := slices.DeleteFunc(slices.Clone(requests), func(r democms.Request) bool {
		return r.StartedAt.Before(from) ||
			r.StartedAt.After(until)
	})
	slices.SortFunc(in, func(a, b democms.Request) int { return a.StartedAt.Compare(b.StartedAt) })
	return in
}

// longestStandstill returns the longest time between "from" and "until" in which no request began
// at the CMS.
func longestStandstill(requests []democms.Request, from, until time.Time) time.Duration {
	longest, before := time.Duration(0), from
	for _, req := range requestsWithin(requests, from, until) {
		longest, before = max(longest, req.StartedAt.Sub(before)), req.StartedAt
	}
	return max(longest, until.Sub(before))
}
