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
// process could receive a ticket, so the ticket rings in this process, at the time at which it
// would become visible in the queue. It implements ticket.Queue.
type bell struct {
	log    *slog.Logger
	mu     sync.Mutex
	ring   func(lane int)      // nil = tickets have no effect
	timers map[int]*time.Timer // of the tickets that have not rung, by their numbers
	last   int                 // number of the last ticket
}

// connect makes later tickets call ring with their lanes, or with ticket.AllLanes.
func (b *bell) connect(ring func(lane int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ring, b.timers = ring, map[int]*time.Timer{}
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

	b.last++
	number := b.last
	b.timers[number] = time.AfterFunc(delay, func() {
		defer panics.Log(b.log, "ticket: ring")
		if b.takeTicket(number) {
			ring(lane)
		}
	})

	return nil
}

// takeTicket removes a ticket. It reports whether the ticket still has an effect.
func (b *bell) takeTicket(number int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, waits := b.timers[number]
	delete(b.timers, number)
	return waits
}

// close makes all tickets have no effect, also those that wait.
func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, timer := range b.timers {
		timer.Stop()
	}
	b.ring, b.timers = nil, nil
}
