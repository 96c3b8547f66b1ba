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

// The recipe is a usual solution for Weir's task on Weir's platform. The bench compares Weir with
// the recipe. An HTTP function puts the message into a queue with a random delay. A queue function
// takes a blob lease, posts the message to the CMS, and releases the lease. If another message has
// the lease, the queue function puts its own message back with a delay. Each step writes a status
// row.
const (
	recipeDelay     = 10 * time.Second // the longest delay of a new message; the shortest is 0
	recipePutBack   = 5 * time.Second  // the delay of a message that is put back
	recipeLease     = 15 * time.Second
	recipeInstances = 2
	recipeBatch     = 16 // the largest number of messages that a poll gets
	// visibility timeout of a message that an instance has received
	recipeHide = 10 * time.Minute
	// first pause after an empty poll; each further empty poll doubles it
	recipePoll    = 100 * time.Millisecond
	recipePollMax = time.Minute // longest pause after a poll of an empty queue
)

// recipeTransactions is the name of the result with which Weir's transactions per message are
// compared.
const recipeTransactions = "usual recipe, transactions per message"

type recipeRun struct {
	account *azure.Account
	counter azure.Counter
	client  *http.Client
	url     string                        // address of the CMS
	running [recipeInstances]atomic.Int64 // number of messages that each instance works on
	misses  atomic.Int64                  // how often another message had the lease
	done    atomic.Int64                  // number of delivered messages
}

// recipeMessage is the content of a queue message of the recipe.
type recipeMessage struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

// runRecipeScenario measures a burst through the recipe. The burst has fewer messages than the
// burst of runSerial, because only ratios are compared.
func runRecipeScenario(ctx context.Context, b *bench) ([]result, error) {
	r, err := b.newRig(ctx, rigOptions{latency: cmsLatency, withoutHost: true})
	if err != nil {
		return nil, err
	}
	defer r.shutDown()
	trips, err := r.measureTrips(ctx, b.sizes.load.trips)
	if err != nil {
		return nil, err
	}

	u := &recipeRun{client: r.client, url: r.cmsURL}
	if u.account, err = azure.Open(azure.Config{ConnectionString: b.yardstickStorage(),
		Prefix: r.prefix + "recipe", Counter: &u.counter}); err != nil {
		return nil, err
	}
	defer u.account.Close()
	if err := u.account.Ensure(ctx); err != nil {
		return nil, err
	}

	before := u.counter.Snapshot()
	began := time.Now()
	all := makeMessages("recipe", b.sizes.recipe, max(b.sizes.recipe/5, 1))
	if err := u.runRecipe(ctx, all, b.sizes.load.clients); err != nil {
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

	used := subtractCounts(toFloats(u.counter.Snapshot()), toFloats(before))
	n := len(all)

	return []result{
		newRow("usual recipe, serial burst", "s", elapsed).withLeast(float64(n)*mean(trips)/1000).
			withNote("%d messages, %d instances with a batch of %d; the lease was missed %d times, %d writes came "+
				"after a later one of their key",
				n, recipeInstances, recipeBatch, u.misses.Load(), st.Inversions),
		newRow(recipeTransactions, "", sumCounts(used)/float64(n)).withNote("%s",
			describeShares(used, n)),
	}, nil
}

func toFloats(counts map[string]int64) map[string]float64 {
	out := map[string]float64{}
	for name, n := range counts {
		out[name] = float64(n)
	}
	return out
}

// runRecipe accepts all messages while the instances run, and waits until all messages are
// delivered.
func (u *recipeRun) runRecipe(ctx context.Context, all []message, clients int) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var instances errgroup.Group
	for n := range recipeInstances {
		instances.Go(func() error {
			err := u.runInstance(working, n, int64(len(all)))
			if err != nil {
				stop()
			}
			return err
		})
	}

	err := u.acceptAll(working, all, clients)
	if err != nil {
		stop()
	}

	return errors.Join(err, instances.Wait())
}

// acceptAll does the work of the HTTP function for all messages.
func (u *recipeRun) acceptAll(ctx context.Context, all []message, clients int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(clients)

	for _, m := range all {
		group.Go(func() error {
			o := recipeMessage{ID: rand.Text(), Body: m.articleBody()}
			if err := u.enqueueMessage(ctx, o, time.Duration(mathrand.Float64()*float64(recipeDelay))); err != nil {
				return err
			}
			return u.writeStatus(ctx, o, "queued")
		})
	}

	return group.Wait()
}

func (u *recipeRun) enqueueMessage(ctx context.Context, o recipeMessage,
	delay time.Duration) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return u.account.Tickets().Put(ctx, string(text), delay)
}

func (u *recipeRun) writeStatus(ctx context.Context, o recipeMessage, stage string) error {
	_, err := u.account.Table().Transact(ctx, "status",
		[]storage.Op{{Kind: storage.Upsert, Key: o.ID,
			Values: map[string]any{"Stage": stage, "ChangedAt": time.Now()}}})
	return err
}

// runInstance processes queue messages until all messages are delivered. It gets more messages only
// while it works on at most recipeBatch/2 messages, as the host does.
func (u *recipeRun) runInstance(ctx context.Context, number int, all int64) error {
	work, ctx := errgroup.WithContext(ctx)
	rest := recipePoll
	for ctx.Err() == nil && u.done.Load() < all {
		if u.running[number].Load() > recipeBatch/2 {
			sleepFor(ctx, time.Millisecond)
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
				return u.processMessage(ctx, m)
			})
		}

		if len(got) > 0 {
			rest = recipePoll
			continue
		}

		sleepFor(ctx, rest)
		rest = min(2*rest, recipePollMax)
	}

	return work.Wait()
}

// processMessage does the work of the queue function for one message. It also deletes the queue
// message, as the host does.
func (u *recipeRun) processMessage(ctx context.Context, m storage.QueueMessage) error {
	var o recipeMessage
	if err := json.Unmarshal([]byte(m.Text), &o); err != nil {
		return err
	}

	id := newLeaseID()
	err := u.account.Leases().Acquire(ctx, "cms", id, recipeLease)
	switch {
	case storage.Is(err, storage.Conflict):
		u.misses.Add(1)
		err = errors.Join(u.enqueueMessage(ctx, o, recipePutBack),
			u.writeStatus(ctx, o, "requeued"))
	case err == nil:
		err = u.deliverMessage(ctx, o, id)
	}

	return errors.Join(err, u.account.Tickets().Delete(ctx, m))
}

func (u *recipeRun) deliverMessage(ctx context.Context, o recipeMessage, lease string) error {
	err := u.writeStatus(ctx, o, "processing")
	if err == nil {
		err = u.postToCMS(ctx, o)
	}

	if err == nil {
		err = u.writeStatus(ctx, o, "completed")
	}

	err = errors.Join(err, u.account.Leases().Release(ctx, "cms", lease))
	if err == nil {
		u.done.Add(1)
	}

	return err
}

func (u *recipeRun) postToCMS(ctx context.Context, o recipeMessage) error {
	return postBody(ctx, u.client, u.url, o.Body, http.Header{"Idempotency-Key": {o.ID}})
}

// newLeaseID returns a random lease id in the form of a UUID.
func newLeaseID() string {
	var b [16]byte
	rand.Read(b[:])
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
