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

// age is the age of the messages. It is longer than the default of the setting "retention", 7 days.
const age = 8 * 24 * time.Hour

// fillAged files messages and delivers them in this process. It uses a clock that is slow by the constant age, so the
// retention of the messages is over when a handler starts.
func fillAged(ctx context.Context, r *rig, all []message) error {
	then := func() time.Time { return time.Now().Add(-age) }
	store := &lane.Store{Table: r.account.Table(), Bodies: r.account.Bodies(), Lanes: r.lanes, Now: then}
	if err := store.Open(ctx); err != nil {
		return err
	}
	err := fillAtOnce(ctx, store, all, 200, func(i int, _ *weir.Message) string { return fmt.Sprint("aged-", i) })
	if err != nil {
		return err
	}
	sender := &countingSender{done: make(chan struct{}), now: then}
	sender.left.Store(int64(len(all)))
	d := drain.New(drain.Config{Store: store, Leases: r.account.Leases(), Sender: sender, Tickets: noTickets{},
		Lease: 30 * time.Second, Settle: 3 * time.Second,
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

// countingSender stands for a CMS that takes each message at once. It closes done after the last message. Several lanes
// may send concurrently.
type countingSender struct {
	left atomic.Int64 // messages that were not sent yet
	done chan struct{}
	now  func() time.Time
}

func (s *countingSender) Send(context.Context, weir.Delivery) weir.Result {
	if s.left.Add(-1) == 0 {
		close(s.done)
	}
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: s.now()}
}
