package main

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/tools/democms/server"
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

// row returns the next message's row, column by column as Weir files it: with smaller rows the
// yardstick would be another transaction.
func (b *bare) row(m message) storage.Op {
	return storage.Op{Kind: storage.Insert, Key: fmt.Sprintf("m_%019d", b.next), Values: map[string]any{
		"Nonce": "00112233445566778899", "Stage": "queued", "Contract": "article", "Key": m.path, "Version": fmt.Sprint(m.version),
		"ContentType": "application/xml", "AcceptedAt": time.Now(), "Size": int64(bodySize), "Body": packedBody()}}
}

// packedBody is a body as Weir files it. Any message's body serves, because the yardstick does
// not count the packing.
var packedBody = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	io.WriteString(w, message{"/bare", 1}.body()) // into memory
	w.Close()
	return packed.Bytes()
})

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
	rates, err := b.acceptRate(ctx)
	return append([]result{latency}, rates...), err
}

// hop posts the same body to the same handler, at an address without a function: only the way
// there and back.
func (r *rig) hop(ctx context.Context, m message) error {
	return postFor(ctx, r.client, at(r.host.Status().Instances[0])+"/api/nothing", m.body(), http.StatusNotFound)
}

// acceptLatency interleaves posts, hops and appends, so that noise hits all alike. A post is one
// append, one hop, and the handler's own work.
func (r *rig) acceptLatency(ctx context.Context, yardstick *bare) (result, error) {
	n := r.sizes.latencies
	var posts, hops, appends, both []float64
	url := r.direct()[0]
	for i := range n + n/10 {
		m := message{fmt.Sprintf("/accept/%d", i%r.sizes.keys), i/r.sizes.keys + 1}
		post, err1 := timed(ctx, func() error { return post(ctx, r.client, url, m) })
		hop, err2 := timed(ctx, func() error { return r.hop(ctx, m) })
		add, err3 := timed(ctx, func() error { return yardstick.append(ctx, m) })
		if err := errors.Join(err1, err2, err3); err != nil {
			return result{}, err
		}
		if i >= n/10 { // before, connections are made and code is compiled
			posts, hops, appends, both = append(posts, post), append(hops, hop), append(appends, add), append(both, hop+add)
		}
	}
	if err := r.delivered(ctx, n+n/10); err != nil {
		return result{}, err
	}
	return measured("accept latency p50, one client", "ms", median(posts)).against(median(both)).ratioAtMost(1.15).
		noted("post: %s; bare hop: %s; bare append transaction: %s", spread(posts), spread(hops), spread(appends)), r.clean(n + n/10)
}

// turns is how often posts and bare transactions take turns, each time in a rig of its own:
// what Azurite takes to insert a row grows with the partition, and storage's does not.
const turns = 5

// pace is how long a number of steps took together.
type pace struct {
	steps int
	spent time.Duration
}

func (p *pace) add(steps int, spent time.Duration) { p.steps, p.spent = p.steps+steps, p.spent+spent }
func (p *pace) perSecond() float64                 { return float64(p.steps) / p.spent.Seconds() }

// intake holds the results of the turns.
type intake struct {
	posts, bare, hopped pace
	groups              float64 // transactions that filed the posts
	work                effort  // of the posts
	bareWork            effort
}

// acceptRate lets many clients post while the lane is paused, in turns with as many that
// file through bare transactions, in groups of the size that the posts had, and with as many
// that do so after a bare hop each: the rest is what the handler itself takes of the CPUs.
func (b *bench) acceptRate(ctx context.Context) ([]result, error) {
	var in intake
	for range turns {
		if err := b.acceptTurn(ctx, &in); err != nil {
			return nil, err
		}
	}
	rate := in.posts.perSecond()
	return []result{measured("accept rate, 64 clients, lane paused", "/s", rate).against(in.bare.perSecond()).atLeast(0.85).
		noted("%d posts in groups of %.1f and bare transactions of the same groups, in %d turns; CPU per post: %s; per bare row: %s",
			in.posts.steps, float64(in.posts.steps)/in.groups, turns, in.work.per(in.posts.steps), in.bareWork.per(in.bare.steps)),
		measured("accept rate, 64 clients, against a bare hop and a row each", "/s", rate).against(in.hopped.perSecond())}, nil
}

// blocks is how often posts and bare transactions take turns in one rig.
const blocks = 4

func (b *bench) acceptTurn(ctx context.Context, in *intake) error {
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
	url, number, gather := r.direct()[0], atomic.Int64{}, &bareGather{bare: yardstick, most: b.sizes.clients}
	next := func() message { return message{fmt.Sprintf("/rate/%d", number.Add(1)), 1} }
	file := func() error { return post(ctx, r.client, url, next()) }
	row := func() error { return gather.file(ctx, next()) }
	hopAndRow := func() error { return errors.Join(r.hop(ctx, next()), row()) }
	n, warm := b.sizes.rate/blocks, new(pace)
	if err := errors.Join(r.hammer(n, warm, file), r.hammer(n, warm, hopAndRow)); err != nil {
		return err
	}
	for range blocks {
		before, err1 := r.transactions(ctx)
		err2 := r.work(&in.work, func() error { return r.hammer(n, &in.posts, file) })
		after, err3 := r.transactions(ctx)
		groups := minus(after, before)["table transact"]
		gather.most = max(1, int(math.Round(float64(n)/max(1, groups))))
		err4 := r.work(&in.bareWork, func() error { return r.hammer(n, &in.bare, row) })
		err5 := r.hammer(n, &in.hopped, hopAndRow)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return err
		}
		in.groups += groups
	}
	want := int64((blocks+1)*n + 1)
	c, err := r.store.ReadControl(ctx, 0)
	if filed := c.Head.Next - 1; err == nil && filed != want {
		return fmt.Errorf("%d messages were accepted and %d filed", want, filed)
	}
	return err
}

// bareGather files rows as a receiver does: one transaction at a time, and the next one takes the
// rows that came meanwhile.
type bareGather struct {
	bare *bare
	most int // rows of a transaction

	mu       sync.Mutex
	waiting  []bareRow
	inFlight bool
}

type bareRow struct {
	message message
	done    chan error
}

// file returns when the row is in storage.
func (g *bareGather) file(ctx context.Context, m message) error {
	row := bareRow{m, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, row)
	if !g.inFlight {
		g.inFlight = true
		go g.flush(ctx)
	}
	g.mu.Unlock()
	return <-row.done
}

func (g *bareGather) flush(ctx context.Context) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), g.most)
		group := g.waiting[:n:n]
		g.waiting, g.inFlight = g.waiting[n:], n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		err := g.bare.insert(ctx, group)
		for _, row := range group {
			row.done <- err
		}
	}
}

// insert makes one transaction of a group. For one goroutine.
func (b *bare) insert(ctx context.Context, group []bareRow) error {
	ops := []storage.Op{{Kind: storage.Merge, Key: "!head", IfMatch: b.head, Values: map[string]any{"Next": b.next + int64(len(group))}}}
	for _, row := range group {
		ops = append(ops, b.row(row.message))
		b.next++
	}
	tags, err := b.account.Table().Transact(ctx, barePartition, ops)
	if err == nil {
		b.head = tags[0]
	}
	return err
}

// pauseLane makes the CMS unavailable for an hour, as far as lane 0 knows.
func (r *rig) pauseLane(ctx context.Context) error {
	r.cms.SetFaults(server.Faults{TooMany: "1h"})
	if err := post(ctx, r.client, r.receive(), message{"/pause", 1}); err != nil {
		return err
	}
	return r.until(ctx, readyLimit, "the lane is paused", func() bool {
		c, err := r.store.ReadControl(ctx, 0)
		return err == nil && time.Until(c.Tail.PausedUntil) > time.Minute && !c.Tail.IsOpen
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
