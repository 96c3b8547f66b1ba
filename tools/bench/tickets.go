package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"
)

const (
	// target: at most this number of tickets for each lane and instance
	ticketsPerLane = 2
	// batchSize of host.json: the platform wants one instance for each 16 queue messages
	batchSize   = 16
	ticketsLook = time.Second // time between two looks at the queue
	postTries   = 10          // tries to post a message
)

// runTickets keeps many lanes busy and watches the queue of tickets. The queue must stay short,
// because the platform adds instances for a long queue. Rigs with different numbers of instances
// run at the same time.
func runTickets(ctx context.Context, b *bench) ([]result, error) {
	counts := b.sizes.crowds.tickets.instances
	rows := make([][]result, len(counts))
	rigs := make([]*rig, len(counts))
	for i, n := range counts {
		r, err := b.newRig(ctx,
			rigOptions{lanes: b.sizes.crowds.tickets.lanes, instances: n, latency: dueLatency})
		if err != nil {
			return nil, err
		}
		defer r.shutDown()
		rigs[i] = r
	}

	group, ctx := errgroup.WithContext(ctx)
	for i, r := range rigs {
		group.Go(func() (err error) { rows[i], err = measureTickets(ctx, r); return err })
	}

	err := group.Wait()
	var all []result
	for _, more := range rows {
		all = append(all, more...)
	}

	return all, err
}

// measureTickets watches the queue during posts to all lanes of a rig. Then it checks the CMS's
// record.
func measureTickets(ctx context.Context, r *rig) ([]result, error) {
	posting, stop := context.WithCancel(ctx)
	defer stop()
	var sent int
	posted := make(chan error, 1)
	go func() {
		var err error
		sent, err = postToAllLanes(posting, r)
		posted <- err
	}()

	most, wanted, err := watchQueue(ctx, r, r.sizes.crowds.tickets.span)
	stop()
	if err2 := <-posted; err == nil {
		err = err2
	}

	if err == nil {
		err = r.awaitDelivered(ctx, sent)
	}

	if err == nil {
		err = r.checkRecord(sent)
	}

	name := func(what string) string {
		return fmt.Sprintf("tickets, %d busy lanes, %d instances: %s", r.lanes, r.instances, what)
	}

	return []result{
		newRow(name("most in the queue"), "", float64(most)).limitValue(float64(ticketsPerLane*r.lanes*r.instances)).
			withNote("a message a second in each lane for %s, %d in all",
				r.sizes.crowds.tickets.span, sent),
		newRow(name("instances the queue asks for"), "", wanted).withBaseline(float64(r.instances)).limitDistance(1).
			withNote("its length / %d while something in it is visible, the most at any moment",
				batchSize),
	}, err
}

// postToAllLanes posts one message per second to each lane, until ctx ends or a post fails. The
// time between two posts is always the same. postToAllLanes returns the number of messages.
func postToAllLanes(ctx context.Context, r *rig) (sent int, err error) {
	paths := pathsByLane("busy", r.lanes, 1)
	group, posting := errgroup.WithContext(context.WithoutCancel(ctx))
	tick := time.NewTicker(time.Second / time.Duration(len(paths)))
	defer tick.Stop()

	for ; ; sent++ {
		select {
		case <-tick.C:
			m := message{paths[sent%len(paths)], sent/len(paths) + 1}
			group.Go(func() error { return postUntilTaken(posting, r, m) })
		case <-ctx.Done():
			return sent, group.Wait()
		case <-posting.Done():
			return sent, group.Wait()
		}
	}
}

// postUntilTaken tries to post a message until Weir accepts the message, at most postTries times.
func postUntilTaken(ctx context.Context, r *rig, m message) error {
	header := http.Header{"Idempotency-Key": {fmt.Sprint(m.path, "-", m.version)}}
	for try := 1; ; try++ {
		err := postBody(ctx, r.client, r.receiveURL(), m.articleBody(), header.Clone())
		if err == nil || try == postTries || !sleepFor(ctx, time.Second) {
			return err
		}
	}
}

// watchQueue looks at the queue repeatedly for the time span. It returns the largest number of
// tickets, including invisible ones. It also returns the largest number of instances that the
// platform would want.
func watchQueue(ctx context.Context, r *rig, span time.Duration) (most int, wanted float64,
	err error) {
	service, err := azqueue.NewServiceClientFromConnectionString(r.storage.ConnectionString(), nil)
	if err != nil {
		return 0, 0, err
	}

	queue := service.NewQueueClient(r.prefix + "-tickets")
	for until := time.Now().Add(span); time.Now().Before(until) && sleepFor(ctx, ticketsLook); {
		length, err := queue.GetProperties(ctx, nil)
		if err != nil {
			return most, wanted, err
		}

		visible, err := queue.PeekMessages(ctx, nil)
		if err != nil {
			return most, wanted, err
		}

		n := int(*length.ApproximateMessagesCount)
		most = max(most, n)
		if len(visible.Messages) > 0 {
			wanted = max(wanted, math.Ceil(float64(n)/batchSize))
		}
	}

	return most, wanted, ctx.Err()
}
