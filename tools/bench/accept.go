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

	"weir/internal/democms"
	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// bareClient makes the transactions of Weir's appends without the rest of Weir, in a table of its
// own. Scenarios use the times of these transactions as a baseline. A bareClient is not safe for
// concurrent use.
type bareClient struct {
	account *azure.Account
	head    storage.ETag // ETag of the row !head, which takes the place of a lane's head
	next    int64        // number in the next row's key
}

const barePartition = "bare"

func newBareClient(ctx context.Context, r *rig) (*bareClient, error) {
	return openBareClient(ctx, r.yardstickStorage(), r.prefix+"bare")
}

func openBareClient(ctx context.Context, connection, prefix string) (*bareClient, error) {
	account, err := azure.Open(azure.Config{ConnectionString: connection, Prefix: prefix})
	if err != nil {
		return nil, err
	}

	if err := account.Ensure(ctx); err != nil {
		return nil, err
	}

	tags, err := account.Table().Transact(ctx, barePartition,
		[]storage.Op{{Kind: storage.Insert, Key: "!head",
			Values: map[string]any{"Next": int64(1)}}})
	if err != nil {
		return nil, err
	}

	return &bareClient{account: account, head: tags[0], next: 1}, nil
}

// newRowOp returns the operation that inserts a row for the next message. The row has the columns
// of Weir's message row: a smaller row would make the baseline cheaper than Weir's append.
func (b *bareClient) newRowOp(m message) storage.Op {
	return storage.Op{Kind: storage.Insert, Key: fmt.Sprintf("m_%019d", b.next),
		Values: map[string]any{
			"Nonce": "00112233445566778899", "Stage": "queued", "Contract": "article",
			"Key":         m.path,
			"Version":     fmt.Sprint(m.version),
			"ContentType": "application/xml", "AcceptedAt": time.Now(), "Size": int64(bodySize),
			"Body": packedBody()}}
}

// packedBody returns a compressed body in the form in which Weir stores bodies. All rows have this
// body, so that the baseline includes no time for compression.
var packedBody = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		panic(err) // happens only for an unknown compression level
	}

	io.WriteString(w, message{"/bare", 1}.articleBody()) // a write into memory does not fail
	w.Close()

	return packed.Bytes()
})

// appendRow makes the transaction by which Weir appends one message.
func (b *bareClient) appendRow(ctx context.Context, m message) error {
	return b.insertRow(ctx, b.newRowOp(m))
}

// insertRow makes the transaction of appendRow with the given operation of newRowOp.
func (b *bareClient) insertRow(ctx context.Context, op storage.Op) error {
	tags, err := b.account.Table().Transact(ctx, barePartition, []storage.Op{
		{Kind: storage.Merge, Key: "!head", IfMatch: b.head,
			Values: map[string]any{"Next": b.next + 1}},
		op,
	})
	if err == nil {
		b.head, b.next = tags[0], b.next+1
	}

	return err
}

// timeStep runs a step and returns its duration in ms. It waits for quietPause before the step, so
// that earlier work does not disturb the measurement.
func timeStep(ctx context.Context, step func() error) (float64, error) {
	if !sleepFor(ctx, quietPause) {
		return 0, ctx.Err()
	}
	began := time.Now()
	err := step()
	return milliseconds(time.Since(began)), err
}

// quietPause is long enough to deliver one message to a fast CMS and to commit the delivery.
const quietPause = 20 * time.Millisecond

// runAccept measures how long one client waits for its 202, and the rate at which Weir accepts
// posts from many clients.
func runAccept(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newWarmRig(ctx, rigOptions{})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	yardstick, err := newBareClient(ctx, r)
	if err != nil {
		return nil, err
	}
	defer yardstick.account.Close()
	latency, err := measureAcceptLatency(ctx, r, yardstick)
	if err != nil {
		return nil, err
	}

	rates, err := measureAcceptRate(ctx, b)

	return append([]result{latency}, rates...), err
}

// postWithoutFunction posts a message's body to the handler, at an address without a function. Such
// a post is a "bare hop": its time covers only the way to the handler and back.
func postWithoutFunction(ctx context.Context, r *rig, m message) error {
	return postFor(ctx, r.client, handlerURL(r.host.Status().Instances[0])+"/api/nothing",
		m.articleBody(), http.StatusNotFound)
}

// measureAcceptLatency compares a post with its parts: a bare hop (see postWithoutFunction) and a
// bare append (see appendRow). It measures the three in turn, so that other load of the machine
// affects all three alike.
func measureAcceptLatency(ctx context.Context, r *rig, yardstick *bareClient) (result, error) {
	n := r.sizes.accept.latencies
	var posts, hops, appends, both []float64
	url := r.handlerURLs()[0]
	for i := range n + n/10 {
		m := message{fmt.Sprintf("/accept/%d", i%r.sizes.load.keys), i/r.sizes.load.keys + 1}
		post, err1 := timeStep(ctx, func() error { return postMessage(ctx, r.client, url, m) })
		hop, err2 := timeStep(ctx, func() error { return postWithoutFunction(ctx, r, m) })
		add, err3 := timeStep(ctx, func() error { return yardstick.appendRow(ctx, m) })
		if err := errors.Join(err1, err2, err3); err != nil {
			return result{}, err
		}

		if i >= n/10 { // the first tenth opens connections and makes Azurite compile its code
			posts, hops, appends, both = append(posts, post), append(hops, hop),
				append(appends, add),
				append(both, hop+add)
		}
	}

	if err := r.awaitDelivered(ctx, n+n/10); err != nil {
		return result{}, err
	}

	return newRow("accept latency p50, one client", "ms", median(posts)).withBaseline(median(both)).limitRatio(1.15).
		withNote("post: %s; bare hop: %s; bare append transaction: %s", describeSpread(posts),
			describeSpread(hops), describeSpread(appends)), r.checkRecord(n + n/10)
}

// turns is the number of Weir installations on which measureAcceptRate measures, one after the
// other. One installation would have too many rows: each row in a partition makes Azurite's inserts
// slower, but not those of Azure Storage.
const turns = 5

// throughput is a number of steps and the elapsed time for all of them.
type throughput struct {
	steps int
	spent time.Duration
}

func (p *throughput) addSteps(steps int, spent time.Duration) {
	p.steps, p.spent = p.steps+steps, p.spent+spent
}
func (p *throughput) perSecond() float64 { return float64(p.steps) / p.spent.Seconds() }

// acceptCounts has the sums over all turns.
type acceptCounts struct {
	posts    throughput
	bare     throughput // rows of bareClient
	hopped   throughput // rows of bareClient, with a bare hop before each row
	groups   float64    // number of transactions by which Weir appended the posts
	work     cpuTimes   // CPU time for the posts
	bareWork cpuTimes   // CPU time for the rows without a hop
}

// measureAcceptRate measures three rates while the lane is paused, each with the same number of
// clients:
//   - posts to Weir
//   - rows of bareClient; the limit of rows in a transaction is the average number of messages in
//     Weir's transactions
//   - rows of bareClient with the same limit, and with a bare hop before each row
//
// For the third rate, each row costs the same hops and transactions as a post. So the difference
// between the first rate and the third shows the handler's own work on a message.
func measureAcceptRate(ctx context.Context, b *bench) ([]result, error) {
	var in acceptCounts
	for range turns {
		if err := takeAcceptTurn(ctx, b, &in); err != nil {
			return nil, err
		}
	}

	rate := in.posts.perSecond()
	return []result{newRow("accept rate, 64 clients, lane paused", "/s",
		rate).withBaseline(in.bare.perSecond()).requireRatio(0.85).
		withNote("%d posts in groups of %.1f and bare transactions of the same groups, in %d turns; CPU per post: "+
			"%s; per bare row: %s",
			in.posts.steps, float64(in.posts.steps)/in.groups, turns,
			in.work.perStep(in.posts.steps),
			in.bareWork.perStep(in.bare.steps)),
		newRow("accept rate, 64 clients, against a bare hop and a row each", "/s",
			rate).withBaseline(in.hopped.perSecond())}, nil
}

// blocks is the number of times that takeAcceptTurn measures the three rates in one installation.
const blocks = 4

// takeAcceptTurn measures in a new installation of Weir, and adds the figures to "in".
func takeAcceptTurn(ctx context.Context, b *bench, in *acceptCounts) error {
	r, err := b.newRig(ctx, rigOptions{})
	if err != nil {
		return err
	}
	defer r.shutDown()
	if err := pauseFirstLane(ctx, r); err != nil {
		return err
	}

	yardstick, err := newBareClient(ctx, r)
	if err != nil {
		return err
	}
	defer yardstick.account.Close()
	url, number, gather := r.handlerURLs()[0], atomic.Int64{},
		&bareBatcher{bare: yardstick, most: b.sizes.load.clients}
	next := func() message { return message{fmt.Sprintf("/rate/%d", number.Add(1)), 1} }
	file := func() error { return postMessage(ctx, r.client, url, next()) }
	row := func() error { return gather.fileRow(ctx, next()) }
	hopAndRow := func() error { return errors.Join(postWithoutFunction(ctx, r, next()), row()) }
	n, warm := b.sizes.accept.rate/blocks, new(throughput)
	if err := errors.Join(repeatByClients(r, n, warm, file), repeatByClients(r, n, warm, hopAndRow)); err != nil {
		return err
	}

	for range blocks {
		before, err1 := r.readTransactions(ctx)
		err2 := addCPUTimes(r, &in.work,
			func() error { return repeatByClients(r, n, &in.posts, file) })
		after, err3 := r.readTransactions(ctx)
		groups := subtractCounts(after, before)["table transact"]
		gather.most = max(1, int(math.Round(float64(n)/max(1, groups))))
		err4 := addCPUTimes(r, &in.bareWork,
			func() error { return repeatByClients(r, n, &in.bare, row) })
		err5 := repeatByClients(r, n, &in.hopped, hopAndRow)
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

// bareBatcher inserts rows as Weir's appender does: while a transaction is in flight, further rows
// wait, and the next transaction inserts them. It is safe for concurrent use.
type bareBatcher struct {
	bare *bareClient
	most int // largest number of rows in a transaction

	mu       sync.Mutex
	waiting  []pendingRow
	inFlight bool // flushRows is running
}

type pendingRow struct {
	message message
	done    chan error // gets the transaction's error, or nil
}

// fileRow inserts a row for the message, and returns when the row's transaction has ended.
func (g *bareBatcher) fileRow(ctx context.Context, m message) error {
	row := pendingRow{m, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, row)
	if !g.inFlight {
		g.inFlight = true
		go g.flushRows(ctx)
	}

	g.mu.Unlock()

	return <-row.done
}

func (g *bareBatcher) flushRows(ctx context.Context) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), g.most)
		group := g.waiting[:n:n]
		g.waiting, g.inFlight = g.waiting[n:], n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}

		err := g.bare.insertGroup(ctx, group)
		for _, row := range group {
			row.done <- err
		}
	}
}

func (b *bareClient) insertGroup(ctx context.Context, group []pendingRow) error {
	ops := []storage.Op{{Kind: storage.Merge, Key: "!head", IfMatch: b.head,
		Values: map[string]any{"Next": b.next + int64(len(group))}}}
	for _, row := range group {
		ops = append(ops, b.newRowOp(row.message))
		b.next++
	}

	tags, err := b.account.Table().Transact(ctx, barePartition, ops)
	if err == nil {
		b.head = tags[0]
	}

	return err
}

// pauseFirstLane pauses lane 0 for an hour. To do so, it makes the CMS answer every write with 429
// and Retry-After, and posts a message. It waits until the lane is paused and has no holder. The
// message stays in the lane.
func pauseFirstLane(ctx context.Context, r *rig) error {
	r.cms.SetFaults(democms.Faults{TooMany: "1h"})
	if err := postMessage(ctx, r.client, r.receiveURL(), message{"/pause", 1}); err != nil {
		return err
	}

	return r.awaitCondition(ctx, readyLimit, "the lane is paused", func() bool {
		c, err := r.store.ReadControl(ctx, 0)
		return err == nil && time.Until(c.Tail.PausedUntil) > time.Minute && !c.Tail.IsOpen
	})
}

// measureBetweenPosts measures the rate at which clients post n messages with the given number of
// keys. It pauses lane 0 first, so that Weir delivers nothing meanwhile.
//
// Half of the posts come before the call of "measure", and half after it. Each row of a lane makes
// Azurite's next inserts slower. With the two halves, the lane has on average as many rows during
// the posts as during "measure".
//
// Each post has an Idempotency-Key. So its message has two rows, like a message from a file, a
// queue or a batch.
func measureBetweenPosts(ctx context.Context, r *rig, n, keys int,
	measure func() error) (*throughput, error) {
	if err := pauseFirstLane(ctx, r); err != nil {
		return nil, err
	}

	posts := new(throughput)
	postHalf := func(space string) error {
		next := make(chan message, n/2)
		for _, m := range makeMessages(space, n/2, keys) {
			next <- m
		}

		url := r.handlerURLs()[0]
		return repeatByClients(r, n/2, posts, func() error {
			m := <-next
			return postBody(ctx, r.client, url, m.articleBody(),
				http.Header{"Idempotency-Key": {fmt.Sprintf("%s-%d", m.path, m.version)}})
		})
	}
	if err := postHalf("before"); err != nil {
		return nil, err
	}

	if err := measure(); err != nil {
		return nil, err
	}

	return posts, postHalf("after")
}

// repeatByClients calls "do" n times in total, from sizes.load.clients goroutines. It adds n and
// the elapsed time to "spent". A goroutine stops at its first error.
func repeatByClients(r *rig, n int, spent *throughput, do func() error) error {
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var group errgroup.Group
	for range r.sizes.load.clients {
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
	spent.addSteps(n, time.Since(began))

	return err
}
