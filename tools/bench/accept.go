package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/tools/cms/server"
)

// bare makes single storage requests, as yardsticks, under names of its own.
type bare struct {
	account *azure.Account
	head    storage.ETag
	next    int64
}

const barePartition = "bare"

func (r *rig) newBare(ctx context.Context) (*bare, error) {
	account, err := azure.Open(azure.Config{ConnectionString: r.storage.ConnectionString(), Prefix: r.prefix + "bare"})
	if err != nil {
		return nil, err
	}
	if err := account.Ensure(ctx); err != nil {
		return nil, err
	}
	tags, err := account.Table().Transact(ctx, barePartition, []storage.Op{{Kind: storage.Insert, Key: "!head", Values: map[string]any{"Next": int64(1)}}})
	if err != nil {
		return nil, err
	}
	return &bare{account: account, head: tags[0], next: 1}, nil
}

// put puts a body into a queue, as the usual recipe takes a message.
func (b *bare) put(ctx context.Context, m message) error {
	return b.account.Tickets().Put(ctx, m.body(), 0)
}

// append makes the transaction that filing one message comes down to. For one goroutine.
func (b *bare) append(ctx context.Context, m message) error {
	tags, err := b.account.Table().Transact(ctx, barePartition, []storage.Op{
		{Kind: storage.Merge, Key: "!head", IfMatch: b.head, Values: map[string]any{"Next": b.next + 1}},
		{Kind: storage.Insert, Key: fmt.Sprintf("m_%019d", b.next), Values: map[string]any{
			"Key": m.path, "Version": fmt.Sprint(m.version), "Stage": "queued", "AcceptedAt": time.Now(), "Body": []byte(m.body())}},
	})
	if err == nil {
		b.head, b.next = tags[0], b.next+1
	}
	return err
}

// timed runs a step, after a moment in which whatever came before has ended, and gives its
// duration in ms.
func timed(ctx context.Context, step func() error) (float64, error) {
	if !pause(ctx, quietPause) {
		return 0, ctx.Err()
	}
	began := time.Now()
	err := step()
	return ms(time.Since(began)), err
}

// quietPause is enough for the delivery and the commit of one message to a fast CMS.
const quietPause = 20 * time.Millisecond

// accept measures how long one client waits for its 202, and how many 64 get in a second.
func accept(ctx context.Context, b *bench) ([]result, error) {
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
	latency, err := r.acceptLatency(ctx, yardstick)
	if err != nil {
		return nil, err
	}
	rate, err := r.acceptRate(ctx, yardstick)
	return []result{latency, rate}, err
}

// acceptLatency interleaves posts, queue puts and appends, so that noise hits all alike.
func (r *rig) acceptLatency(ctx context.Context, yardstick *bare) (result, error) {
	n := r.sizes.latencies
	var posts, puts, appends []float64
	url := r.direct()[0]
	for i := range n + n/10 {
		m := message{fmt.Sprintf("/accept/%d", i%r.sizes.keys), i/r.sizes.keys + 1}
		post, err1 := timed(ctx, func() error { return post(ctx, r.client, url, m) })
		put, err2 := timed(ctx, func() error { return yardstick.put(ctx, m) })
		add, err3 := timed(ctx, func() error { return yardstick.append(ctx, m) })
		if err := errors.Join(err1, err2, err3); err != nil {
			return result{}, err
		}
		if i >= n/10 { // before, connections are made and code is compiled
			posts, puts, appends = append(posts, post), append(puts, put), append(appends, add)
		}
	}
	if err := r.delivered(ctx, n+n/10); err != nil {
		return result{}, err
	}
	return measured("accept latency p50, one client", "ms", median(posts)).against(median(puts)).ratioAtMost(1.3).
		noted("post: %s; bare queue put: %s; bare append transaction: %s", spread(posts), spread(puts), spread(appends)), r.clean(n + n/10)
}

// rounds is how often posts and puts take turns.
const rounds = 3

// acceptRate lets many clients post while the lane is paused, in turns with as many that
// put into a queue.
func (r *rig) acceptRate(ctx context.Context, yardstick *bare) (result, error) {
	if err := r.atRest(ctx, burstLimit); err != nil {
		return result{}, err
	}
	if err := r.pauseLane(ctx); err != nil {
		return result{}, err
	}
	before, err := r.store.Control(ctx, 0)
	if err != nil {
		return result{}, err
	}
	var posts, puts, number atomic.Int64
	url := r.direct()[0]
	var postTime, putTime time.Duration
	for range rounds {
		next := func() message { return message{fmt.Sprintf("/rate/%d", number.Add(1)), 1} }
		spent, err := r.hammer(ctx, &posts, func() error { return post(ctx, r.client, url, next()) })
		if err != nil {
			return result{}, err
		}
		postTime += spent
		if spent, err = r.hammer(ctx, &puts, func() error { return yardstick.put(ctx, next()) }); err != nil {
			return result{}, err
		}
		putTime += spent
	}
	after, err := r.store.Control(ctx, 0)
	if filed := after.Head.Next - before.Head.Next; err == nil && filed != posts.Load() {
		err = fmt.Errorf("%d messages were accepted and %d filed", posts.Load(), filed)
	}
	return measured("accept rate, 64 clients, lane paused", "/s", float64(posts.Load())/postTime.Seconds()).
		against(float64(puts.Load())/putTime.Seconds()).atLeast(3).noted("%d posts, %d queue puts, in %d turns", posts.Load(), puts.Load(), rounds), err
}

// pauseLane makes the CMS unavailable for an hour, as far as lane 0 knows.
func (r *rig) pauseLane(ctx context.Context) error {
	r.cms.SetFaults(server.Faults{TooMany: "1h"})
	if err := post(ctx, r.client, r.receive(), message{"/pause", 1}); err != nil {
		return err
	}
	return r.until(ctx, readyLimit, "the lane is paused", func() bool {
		c, err := r.store.Control(ctx, 0)
		return err == nil && time.Until(c.Tail.PausedUntil) > time.Minute && !c.Tail.Open
	})
}

// hammer lets as many clients as a burst has do one thing over and over for a while.
func (r *rig) hammer(ctx context.Context, count *atomic.Int64, do func() error) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range r.sizes.clients {
		group.Go(func() error {
			for time.Since(began) < r.sizes.turn {
				if err := do(); err != nil {
					return errors.Join(err, ctx.Err())
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return time.Since(began), err
}
