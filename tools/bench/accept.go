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
	account, err := azure.Open(azure.Config{ConnectionString: r.yardstickStorage(), Prefix: r.prefix + "bare"})
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

// row is the next message's, about as Weir has it.
func (b *bare) row(m message) storage.Op {
	return storage.Op{Kind: storage.Insert, Key: fmt.Sprintf("m_%019d", b.next), Values: map[string]any{
		"Key": m.path, "Version": fmt.Sprint(m.version), "Stage": "queued", "AcceptedAt": time.Now(), "Body": []byte(m.body())}}
}

// append makes the transaction that filing one message comes down to. For one goroutine.
func (b *bare) append(ctx context.Context, m message) error {
	tags, err := b.account.Table().Transact(ctx, barePartition, []storage.Op{
		{Kind: storage.Merge, Key: "!head", IfMatch: b.head, Values: map[string]any{"Next": b.next + 1}},
		b.row(m),
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
	rate, err := b.acceptRate(ctx)
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

// turns is how often posts, puts and transactions take turns, each time in a rig of its own:
// what Azurite takes to insert a row grows with the partition, and storage's does not.
const turns = 5

// pace is how long a number of steps took together.
type pace struct {
	steps int
	spent time.Duration
}

func (p *pace) add(steps int, spent time.Duration) { p.steps, p.spent = p.steps+steps, p.spent+spent }
func (p *pace) perSecond() float64                 { return float64(p.steps) / p.spent.Seconds() }

// acceptRate lets many clients post while the lane is paused, in turns with as many that
// put into a queue. Full transactions, one after the other, are shown beside them: no
// receiver can file faster than these.
func (b *bench) acceptRate(ctx context.Context) (result, error) {
	var posts, puts, rows pace
	var work effort
	for range turns {
		if err := b.acceptTurn(ctx, &posts, &puts, &rows, &work); err != nil {
			return result{}, err
		}
	}
	return measured("accept rate, 64 clients, lane paused", "/s", posts.perSecond()).against(puts.perSecond()).atLeast(3).
		noted("%d posts and queue puts in %d turns; bare transactions of %d rows, one after the other: %.0f rows/s; CPU per post: %s",
			posts.steps, turns, storage.MaxOps-1, rows.perSecond(), work.per(posts.steps)), nil
}

func (b *bench) acceptTurn(ctx context.Context, posts, puts, rows *pace, work *effort) error {
	r, err := b.newRig(ctx, setup{})
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.pauseLane(ctx); err != nil {
		return err
	}
	yardstick, err := r.newBare(ctx)
	if err != nil {
		return err
	}
	defer yardstick.account.Close()
	url, number := r.direct()[0], atomic.Int64{}
	next := func() message { return message{fmt.Sprintf("/rate/%d", number.Add(1)), 1} }
	file := func() error { return post(ctx, r.client, url, next()) }
	put := func() error { return yardstick.put(ctx, next()) }
	n, warm := b.sizes.rate, new(pace)
	if err := errors.Join(r.hammer(n/5, warm, file), r.hammer(n/5, warm, put), r.work(work, func() error { return r.hammer(n, posts, file) }), r.hammer(n, puts, put)); err != nil {
		return err
	}
	c, err := r.store.Control(ctx, 0)
	if filed := c.Head.Next - 1; err == nil && filed != int64(n+n/5+1) {
		return fmt.Errorf("%d messages were accepted and %d filed", n+n/5+1, filed)
	}
	return errors.Join(err, yardstick.insert(ctx, n, rows))
}

// insert fills transactions with rows, so many in all.
func (b *bare) insert(ctx context.Context, n int, rows *pace) error {
	began := time.Now()
	for range n / (storage.MaxOps - 1) {
		ops := []storage.Op{{Kind: storage.Merge, Key: "!head", IfMatch: b.head, Values: map[string]any{"Next": b.next + 1}}}
		for range storage.MaxOps - 1 {
			ops = append(ops, b.row(message{"/bare", int(b.next)}))
			b.next++
		}
		tags, err := b.account.Table().Transact(ctx, barePartition, ops)
		if err != nil {
			return err
		}
		b.head = tags[0]
	}
	rows.add(n/(storage.MaxOps-1)*(storage.MaxOps-1), time.Since(began))
	return nil
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

// hammer lets as many clients as a burst has do one thing n times in all.
func (r *rig) hammer(n int, spent *pace, do func() error) error {
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var group errgroup.Group
	for range r.sizes.clients {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	spent.add(n, time.Since(began))
	return err
}
