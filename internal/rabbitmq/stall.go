package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/clock"
)

// stallGuard notices that this process has stood still, for example because the platform froze it.
// A broker that gets no heartbeat meanwhile takes the process for gone, and lets another consumer
// have its deliveries. The deliveries that this process has in memory are then old: without a
// message_id, each would become a second message, behind the newer messages of its key. So after a
// stall no delivery of the connection is filed, except one whose append was under way. It is safe
// for concurrent use.
type stallGuard struct {
	now   func() time.Time
	limit time.Duration // longest time between two checks; 0 = the connection has no heartbeats

	mu       sync.Mutex
	seenAt   time.Time
	hasStall bool // stays set: the deliveries of the connection are old for good
}

// errStalled is the reason for which a consumer leaves its connection after a stall.
var errStalled = errors.New("this process stood still for longer than half a heartbeat, and its deliveries are old")

// newStallGuard returns a guard for a connection with this interval of heartbeats. The broker needs
// at least the interval to notice that a peer is gone. The peer's last heartbeat is at most half
// the interval old.
func newStallGuard(now func() time.Time, heartbeat time.Duration) *stallGuard {
	return &stallGuard{now: now, limit: heartbeat / 2, seenAt: now()}
}

// isIntact reports whether the process has run without a stall until now. It must be called at
// least once in "limit". Round removes the monotonic reading: while a machine sleeps, only one of
// the two clocks goes on.
func (g *stallGuard) isIntact() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	passed := max(now.Sub(g.seenAt), now.Round(0).Sub(g.seenAt.Round(0)))
	g.hasStall = g.hasStall || g.limit > 0 && passed > g.limit
	g.seenAt = now
	return !g.hasStall
}

// watch calls isIntact again and again, until the process has stood still, or ctx ends.
func (g *stallGuard) watch(ctx context.Context) (hasStall bool) {
	const checks = 5 // in "limit"
	for g.limit > 0 && clock.Sleep(ctx, g.limit/checks) {
		if !g.isIntact() {
			return true
		}
	}
	return false
}
