package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/ticket"
)

// bell takes the place of the queue of tickets in a process that has its storage alone: no other
// process could receive a ticket, so the ticket rings in this process, at the time at which it would
// become visible in the queue. It implements ticket.Queue.
type bell struct {
	log    *slog.Logger
	mu     sync.Mutex
	ring   func(lane int) // nil = tickets have no effect
	timers map[*time.Timer]struct{}
}

// connect makes later tickets call ring with their lanes, or with ticket.AllLanes.
func (b *bell) connect(ring func(lane int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ring, b.timers = ring, map[*time.Timer]struct{}{}
}

// Put implements ticket.Queue.
func (b *bell) Put(_ context.Context, text string, delay time.Duration) error {
	_, lane, err := ticket.Decode(text)
	if err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	ring := b.ring
	if ring == nil {
		return nil
	}
	var timer *time.Timer // the function below reads it only after this function has set it
	timer = time.AfterFunc(delay, func() {
		defer panics.Log(b.log, "ticket: ring")
		if b.takeTimer(timer) {
			ring(lane)
		}
	})
	b.timers[timer] = struct{}{}
	return nil
}

// takeTimer removes the timer of a ticket. It reports whether the ticket still has an effect.
func (b *bell) takeTimer(timer *time.Timer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, isSet := b.timers[timer]
	delete(b.timers, timer)
	return isSet
}

// close makes all tickets have no effect, also those that wait.
func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for timer := range b.timers {
		timer.Stop()
	}
	b.ring, b.timers = nil, nil
}
