package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// The usual recipe, as it is commonly built on the same platform: an HTTP function puts the
// message into a queue with a random delay; a queue function takes one blob lease, posts to
// the CMS, releases; who misses the lease puts the message back with a delay. A status row
// is written at each step.
const (
	recipeDelay     = 10 * time.Second // of a new message, drawn from 0
	recipePutBack   = 5 * time.Second
	recipeLease     = 15 * time.Second
	recipeInstances = 2
	recipeBatch     = 16
	recipeHide      = 10 * time.Minute
	recipePoll      = 100 * time.Millisecond // of an empty queue, then about doubled, as by the host
	recipePollMax   = time.Minute
)

// recipeTransactions is the row that stands as yardstick against Weir's.
const recipeTransactions = "usual recipe, transactions per message"

// usual is one run of it.
type usual struct {
	account *azure.Account
	counter azure.Counter
	client  *http.Client
	url     string // of the CMS
	running [recipeInstances]atomic.Int64
	misses  atomic.Int64
	done    atomic.Int64
}

// order is the queue message.
type order struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

// recipe runs it with fewer messages than Weir gets: the ratio is what counts.
func recipe(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, setup{latency: cmsLatency, hostless: true})
	if err != nil {
		return nil, err
	}
	defer r.close()
	trips, err := r.trips(ctx, b.sizes.trips)
	if err != nil {
		return nil, err
	}
	u := &usual{client: r.client, url: r.cmsURL}
	if u.account, err = azure.Open(azure.Config{ConnectionString: b.yardstickStorage(), Prefix: r.prefix + "recipe", Counter: &u.counter}); err != nil {
		return nil, err
	}
	defer u.account.Close()
	if err := u.account.Ensure(ctx); err != nil {
		return nil, err
	}
	before := u.counter.Snapshot()
	began := time.Now()
	all := messages("recipe", b.sizes.recipe, max(b.sizes.recipe/5, 1))
	if err := u.run(ctx, all, b.sizes.clients); err != nil {
		return nil, err
	}
	elapsed := 0.0
	for _, req := range r.cms.Requests() {
		elapsed = max(elapsed, req.EndedAt.Sub(began).Seconds())
	}
	st := r.cms.Stats()
	if st.Writes != len(all) {
		return nil, fmt.Errorf("the CMS took %d writes of %d messages", st.Writes, len(all))
	}
	used := minus(floats(u.counter.Snapshot()), floats(before))
	n := len(all)
	return []result{
		measured("usual recipe, serial burst", "s", elapsed).shareOf(float64(n)*mean(trips)/1000).
			noted("%d messages, %d instances with a batch of %d; the lease was missed %d times, %d writes came after a later one of their key",
				n, recipeInstances, recipeBatch, u.misses.Load(), st.Inversions),
		measured(recipeTransactions, "", total(used)/float64(n)).noted("%s", shares(used, n)),
	}, nil
}

func floats(counts map[string]int64) map[string]float64 {
	out := map[string]float64{}
	for name, n := range counts {
		out[name] = float64(n)
	}
	return out
}

// run accepts all messages, and works on them with two instances until they are done.
func (u *usual) run(ctx context.Context, all []message, clients int) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var instances errgroup.Group
	for n := range recipeInstances {
		instances.Go(func() error {
			err := u.instance(working, n, int64(len(all)))
			if err != nil {
				stop()
			}
			return err
		})
	}
	err := u.accept(working, all, clients)
	if err != nil {
		stop()
	}
	return errors.Join(err, instances.Wait())
}

func (u *usual) accept(ctx context.Context, all []message, clients int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)
	for _, m := range all {
		group.Go(func() error {
			o := order{ID: rand.Text(), Body: m.body()}
			if err := u.enqueue(ctx, o, time.Duration(mathrand.Float64()*float64(recipeDelay))); err != nil {
				return err
			}
			return u.status(ctx, o, "queued")
		})
	}
	return group.Wait()
}

func (u *usual) enqueue(ctx context.Context, o order, delay time.Duration) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return u.account.Tickets().Put(ctx, string(text), delay)
}

func (u *usual) status(ctx context.Context, o order, stage string) error {
	_, err := u.account.Table().Transact(ctx, "status", []storage.Op{{Kind: storage.Upsert, Key: o.ID,
		Values: map[string]any{"Stage": stage, "ChangedAt": time.Now()}}})
	return err
}

// instance takes batches as the host does: the next one once half of it is done.
func (u *usual) instance(ctx context.Context, number int, all int64) error {
	work, ctx := errgroup.WithContext(ctx)
	rest := recipePoll
	for ctx.Err() == nil && u.done.Load() < all {
		if u.running[number].Load() > recipeBatch/2 {
			pause(ctx, time.Millisecond)
			continue
		}
		got, err := u.account.Tickets().Get(ctx, recipeBatch, recipeHide)
		if err != nil {
			return errors.Join(err, work.Wait())
		}
		for _, m := range got {
			u.running[number].Add(1)
			work.Go(func() error {
				defer u.running[number].Add(-1)
				return u.process(ctx, m)
			})
		}
		if len(got) > 0 {
			rest = recipePoll
			continue
		}
		pause(ctx, rest)
		rest = min(2*rest, recipePollMax)
	}
	return work.Wait()
}

// process is the queue function, and the host's deletion of what it has dealt with.
func (u *usual) process(ctx context.Context, m storage.QueueMessage) error {
	var o order
	if err := json.Unmarshal([]byte(m.Text), &o); err != nil {
		return err
	}
	id := uuid()
	err := u.account.Leases().Acquire(ctx, "cms", id, recipeLease)
	switch {
	case storage.Is(err, storage.Conflict):
		u.misses.Add(1)
		err = errors.Join(u.enqueue(ctx, o, recipePutBack), u.status(ctx, o, "requeued"))
	case err == nil:
		err = u.deliver(ctx, o, id)
	}
	return errors.Join(err, u.account.Tickets().Delete(ctx, m))
}

func (u *usual) deliver(ctx context.Context, o order, lease string) error {
	err := u.status(ctx, o, "processing")
	if err == nil {
		err = u.send(ctx, o)
	}
	if err == nil {
		err = u.status(ctx, o, "completed")
	}
	err = errors.Join(err, u.account.Leases().Release(ctx, "cms", lease))
	if err == nil {
		u.done.Add(1)
	}
	return err
}

func (u *usual) send(ctx context.Context, o order) error {
	return postBody(ctx, u.client, u.url, o.Body, http.Header{"Idempotency-Key": {o.ID}})
}

// uuid makes a lease's id.
func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
