package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

// age is the age of the messages that fillAged makes. It is longer than 7 days, the default of the
// setting "retention".
const age = 8 * 24 * time.Hour

// fillAged appends messages, and delivers them in this process. It uses a clock that is 8 days
// behind (see age), so the messages are old enough for the retention to remove them when a handler
// starts.
func fillAged(ctx context.Context, r *rig, all []message) error {
	then := func() time.Time { return time.Now().Add(-age) }
	store := &lane.Store{Table: r.account.Table(), Bodies: r.account.Bodies(),
		Lanes: r.lanes, Now: then}
	if err := store.Open(ctx); err != nil {
		return err
	}

	err := fillAtOnce(ctx, store, all, 200,
		func(i int, _ *weir.Message) string { return fmt.Sprint("aged-", i) })
	if err != nil {
		return err
	}

	sender := &countingSender{done: make(chan struct{}), now: then}
	sender.left.Store(int64(len(all)))
	d := drain.New(drain.Config{Store: store, Leases: r.account.Leases(), Sender: sender,
		Tickets: noTickets{}, Lease: 30 * time.Second, Settle: 3 * time.Second,
		Attempts: 5, Backoff: drain.Backoff{Min: time.Second, Max: time.Minute}, Now: then,
		Log: slog.New(slog.DiscardHandler)})

	for n := range r.lanes {
		d.Wake(n)
	}

	select {
	case <-sender.done:
	case <-ctx.Done():
		err = ctx.Err()
	}

	return closeDrainer(d, err)
}

// countingSender takes the place of a CMS that accepts each message without delay. It closes done
// after the last message. It is safe for concurrent use.
type countingSender struct {
	left atomic.Int64 // number of messages not sent yet
	done chan struct{}
	now  func() time.Time
}

func (s *countingSender) Send(context.Context, weir.Delivery) weir.Result {
	if s.left.Add(-1) == 0 {
		close(s.done)
	}
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: s.now()}
}
