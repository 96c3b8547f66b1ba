package ticket

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"weir/internal/storage"
)

const (
	// defaultMaxDelay spreads the rings of many instances without making anyone wait long.
	defaultMaxDelay = 10 * time.Second

	// defaultCounts is how long past its moment a ticket of ours is still believed to be
	// there: the host polls at least once a minute.
	defaultCounts = time.Minute

	// takenAfter is how long after its moment a ticket of ours that has not come is taken for one
	// that another instance has, if a ticket has to come to this one.
	takenAfter = 10 * time.Second

	// maxLaneTickets is how many tickets of single lanes an instance has at a time. With those
	// for all lanes and the one in the hands of the invocation that stays they are fewer than 16,
	// the batch size by which target-based scaling divides the queue's length: more would ask for
	// instances without work.
	maxLaneTickets = 8

	// grain is the exactness of a moment in the queue: it counts whole seconds, by a clock
	// that is not ours.
	grain = time.Second

	// putTimeout bounds a put that nobody waits for.
	putTimeout = 10 * time.Second

	// maxQueueDelay is the longest visibility delay the queue takes.
	maxQueueDelay = 7 * 24 * time.Hour
)

// Config says where and how a Bell rings.
type Config struct {
	Queue              storage.Queue
	Epoch              int
	MinDelay, MaxDelay time.Duration    // of a ring, drawn between them; MaxDelay 0 = 10 s
	NoDelay            bool             // rings have no delay, whatever MinDelay and MaxDelay say
	Counts             time.Duration    // how long past its moment a ticket of ours still counts; 0 = a minute
	Now                func() time.Time // nil = time.Now
	Rand               func() float64   // 0 to 1, called concurrently; nil = math/rand
	Log                *slog.Logger     // nil = no logs
}

func (c Config) withDefaults() Config {
	if c.MaxDelay == 0 {
		c.MaxDelay = defaultMaxDelay
	}
	c.MaxDelay = max(c.MaxDelay, c.MinDelay)
	if c.NoDelay {
		c.MinDelay, c.MaxDelay = 0, 0
	}
	if c.Counts == 0 {
		c.Counts = defaultCounts
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Bell puts tickets under the merge rule. Its methods may be called concurrently.
type Bell struct {
	cfg Config

	mu  sync.Mutex
	own []*note

	putting sync.WaitGroup // rings nobody waits for
}

// note records a ticket of ours: its lane, or AllLanes, and when it becomes visible.
type note struct {
	lane      int
	visibleAt time.Time
	isPutBack bool
}

// New makes a Bell that has rung nothing yet.
func New(cfg Config) *Bell { return &Bell{cfg: cfg.withDefaults()} }

// Ring wants a ticket to be visible within MinDelay to MaxDelay from now, and puts none
// when one of our own comes by then anyway. After an error nothing is noted, so the next
// ring puts one; the error is storage's, wrapped, and no reason to fail what rang.
func (b *Bell) Ring(ctx context.Context, lane int) error {
	now := b.cfg.Now()
	return b.ring(ctx, lane, now, b.between(b.cfg.MinDelay, b.cfg.MaxDelay), b.cfg.MaxDelay)
}

// RingNow puts a ticket that is visible at once, unless it has put one for the lane within this
// second. Tickets of ours that are visible already do not count: another instance may have taken
// them, and this one is for a lane that has to move.
func (b *Bell) RingNow(ctx context.Context, lane int) error {
	return b.ringAnew(ctx, lane, grain, 0)
}

// Relieve is RingNow for an instance that has time: a ticket of ours will do that becomes visible
// within MaxDelay or ten seconds, or has been visible for less than takenAfter.
func (b *Bell) Relieve(ctx context.Context, lane int) error {
	return b.ringAnew(ctx, lane, takenAfter, min(b.cfg.MaxDelay, defaultMaxDelay))
}

// ringAnew puts a ticket that is visible at once, unless one of our own becomes visible until
// latest, or did no longer ago than earliest.
func (b *Bell) ringAnew(ctx context.Context, lane int, earliest, latest time.Duration) error {
	now := b.cfg.Now()
	b.mu.Lock()
	b.drop(func(n *note) bool {
		return (n.lane == lane || n.lane == AllLanes) && n.visibleAt.Before(now.Add(-earliest))
	})
	b.mu.Unlock()
	return b.ring(ctx, lane, now, 0, latest)
}

// RingSoon is Ring for who must not wait for the queue: whether a ticket is needed is
// decided at once, and it is put in the background. A failure is logged.
func (b *Bell) RingSoon(lane int) {
	now := b.cfg.Now()
	delay := inWholeSeconds(b.between(b.cfg.MinDelay, b.cfg.MaxDelay))
	claimed := b.claim(lane, now, now.Add(delay), now.Add(b.cfg.MaxDelay))
	if claimed == nil {
		return
	}
	b.putting.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), putTimeout)
		defer cancel()
		if err := b.put(ctx, claimed, delay); err != nil {
			b.cfg.Log.Warn("ticket: not put", "lane", lane, "err", err)
		}
	})
}

// Wait waits for what RingSoon has begun, until ctx ends.
func (b *Bell) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { b.putting.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// RingAt wants a ticket to be visible at the moment needed, or a second later; a moment
// past is now. It puts none when one of our own is visible by then.
func (b *Bell) RingAt(ctx context.Context, lane int, needed time.Time) error {
	now := b.cfg.Now()
	return b.ring(ctx, lane, now, needed.Sub(now), needed.Sub(now))
}

// PutBack is the ring of a process that got a ticket and found the lane busy: a new ticket
// after about that long, three quarters to five quarters of it, so that those who wait for
// one lane do not meet again. It takes the place of the one in hand, which Seen has
// dropped and the host deletes. It puts none when one of our own comes by then anyway.
func (b *Bell) PutBack(ctx context.Context, lane int, about time.Duration) error {
	now := b.cfg.Now()
	delay := inWholeSeconds(b.between(about*3/4, about*5/4))
	claimed := b.claim(lane, now, now.Add(delay), now.Add(about*5/4))
	if claimed == nil {
		return nil
	}
	b.mu.Lock()
	claimed.isPutBack = true
	b.mu.Unlock()
	return b.put(ctx, claimed, delay)
}

// AwaitsPutBack reports whether a ticket of the lane that this process put back is still to come.
func (b *Bell) AwaitsPutBack(lane int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Now()
	return slices.ContainsFunc(b.own, func(n *note) bool { return n.lane == lane && n.isPutBack && n.visibleAt.After(now) })
}

// Seen says that a ticket of the lane has arrived here: it may be our own, so those that
// are visible by now stop counting. Call it before looking whether the lane has work:
// what is filed after the look must be able to ring.
func (b *Bell) Seen(lane int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by := b.cfg.Now().Add(grain)
	b.drop(func(n *note) bool { return n.lane == lane && !n.visibleAt.After(by) })
}

// ring puts one ticket that becomes visible after delay, unless one of our own is there
// when latest has passed.
func (b *Bell) ring(ctx context.Context, lane int, now time.Time, delay, latest time.Duration) error {
	delay = inWholeSeconds(delay)
	claimed := b.claim(lane, now, now.Add(delay), now.Add(max(latest, 0)))
	if claimed == nil {
		return nil
	}
	return b.put(ctx, claimed, delay)
}

func (b *Bell) put(ctx context.Context, claimed *note, delay time.Duration) error {
	if err := b.cfg.Queue.Put(ctx, Encode(b.cfg.Epoch, claimed.lane), delay); err != nil {
		// Also when it may have been put: one ticket too many is cheaper than one too few.
		b.disclaim(claimed)
		return fmt.Errorf("ring lane %d: %w", claimed.lane, err)
	}
	b.cfg.Log.Debug("ticket: put", "lane", claimed.lane, "delay", delay)
	return nil
}

// claim notes a ticket before it is put, so that rings meanwhile put no other and wait for
// nothing. It returns nil when one of our own is visible by the time needed. Beyond
// maxLaneTickets the ticket noted is one for all lanes.
func (b *Bell) claim(lane int, now, visibleAt, needed time.Time) *note {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(func(n *note) bool { return !n.visibleAt.After(now.Add(-b.cfg.Counts)) })
	if b.comes(lane, needed) || b.comes(AllLanes, needed) {
		return nil
	}
	if b.laneTickets() >= maxLaneTickets {
		lane = AllLanes
	}
	n := &note{lane: lane, visibleAt: visibleAt}
	b.own = append(b.own, n)
	return n
}

// comes reports whether a ticket of ours for the lane is visible by the time needed. The
// caller holds mu.
func (b *Bell) comes(lane int, needed time.Time) bool {
	// The grain: a ticket put for this very moment was itself rounded up.
	return slices.ContainsFunc(b.own, func(n *note) bool { return n.lane == lane && !n.visibleAt.After(needed.Add(grain)) })
}

// laneTickets counts our tickets of single lanes. The caller holds mu.
func (b *Bell) laneTickets() (count int) {
	for _, n := range b.own {
		if n.lane != AllLanes {
			count++
		}
	}
	return count
}

// disclaim takes back the note of a ticket that could not be put.
func (b *Bell) disclaim(failed *note) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(func(n *note) bool { return n == failed })
}

// drop removes notes. The caller holds mu.
func (b *Bell) drop(match func(*note) bool) { b.own = slices.DeleteFunc(b.own, match) }

// inWholeSeconds is a delay as the queue counts it, within what it takes.
func inWholeSeconds(d time.Duration) time.Duration {
	d = min(max(0, d), maxQueueDelay)
	return (d + time.Second - 1).Truncate(time.Second)
}

func (b *Bell) between(low, high time.Duration) time.Duration {
	return low + time.Duration(b.cfg.Rand()*float64(high-low))
}
