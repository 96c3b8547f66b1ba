package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A large world has a backlog of thousands of messages, a thousand messages with the same due time,
// or more lanes than the number of invocations that a host runs at once. The tests run few large
// worlds, because each takes as long as a hundred usual ones.

// sizes has the kind and a bound of a large world. The zero value means that the world is not
// large.
type sizes struct {
	kind   largeKind
	commit float64 // largest allowed number of transactions on tail per message
}

type largeKind string

const (
	backlog  largeKind = "a backlog"
	together largeKind = "due at one moment"
	manyLane largeKind = "more lanes than slots"
)

// drawLarge draws the settings of a large world. The kinds take turns from seed to seed.
func drawLarge(d *dice) settings {
	s := settings{
		instances: 1 + d.drawBelow("instances", 3), lanes: 1 + d.drawBelow("lanes", 3),
		keys: 200 + d.drawBelow("keys", 400), lease: 15 * time.Second, attempts: 3,
		timeout: 5 * time.Second,
		backoff: drain.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second},
		swift:   true, trouble: time.Minute,
		faults:    []float64{0, 0.005}[d.drawBelow("faults", 2)],
		cmsFaults: []float64{0, 0.02}[d.drawBelow("cms faults", 2)], bad: [2]int{-1, -1},
	}

	s.settle = lease.Margin(s.lease)
	s.sizes = sizes{kind: []largeKind{backlog, together, manyLane}[d.seed%3], commit: 0.25}
	switch s.sizes.kind {
	case backlog:
		s.messages, s.crashes = 1500+d.drawBelow("messages", 1500), d.drawBelow("crashes", 2)
	case together:
		s.messages, s.scheduled, s.lanes = 1000+d.drawBelow("messages", 300), 1,
			1+d.drawBelow("lanes", 2)
		s.moments[0] = s.trouble + recovered + 10*time.Second
		s.sizes.commit = 0.5 // tail is also written when a message becomes due

	case manyLane:
		s.lanes, s.messages, s.keys, s.trouble = 32+d.drawBelow("more lanes", 16), 3000, 1000,
			2*time.Minute
		s.sizes.commit = 2 // two messages seldom share a transaction
	}

	return s
}

// startOf returns the time from the start of a large world until submission number i is posted. In
// worlds with a backlog, messages come faster than the lanes can deliver them. If messages came
// more slowly, a lane would commit each outcome alone, and exceed the bound for transactions. In
// worlds with many lanes, messages come during the whole time of faults.
func (z sizes) startOf(w *world, i int) time.Duration {
	limit := 10 * time.Second
	switch z.kind {
	case manyLane:
		limit = w.trouble
	case backlog:
		limit = time.Second
	}

	return w.dice.drawBetween(fmt.Sprint("start ", i), 0, limit)
}

// decided implements drain.Observer. For each lane, it counts the messages that are final in the
// holder's memory but not yet in storage. After a crash the next holder must deal with these
// messages again.
type decided struct {
	w  *world
	mu sync.Mutex
	n  map[int]int64 // number of such messages, by lane
}

func (d *decided) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}

func (d *decided) Finished(number int, _ drain.Final) {
	if d.w.sizes.kind == "" {
		// the world is not large: countTransaction subtracts nothing, so the number would only rise
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	if d.n[number]++; d.n[number] > uncommittedAtMost {
		d.w.check.reportViolation("memory", "%d messages of lane %d are decided and not committed",
			d.n[number], number)
	}
}

func (d *decided) Lease(number int, event drain.LeaseEvent) {
	if event == drain.LeaseTaken {
		d.noteCommitted(number, 1<<40)
	}
}

func (d *decided) noteCommitted(number int, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.n[number] = max(0, d.n[number]-n)
}

// The bounds of a large world.
const (
	// messages of a lane that are final in the holder's memory but not yet in storage
	uncommittedAtMost = 400
	// tickets for each lane and process; besides, each process can have one ticket more
	ticketsAtMost = 2
	sweepAtMost   = 100 * time.Millisecond
)

// watchSizes checks the number of tickets each second, in large worlds.
func (w *world) watchSizes(ctx context.Context) {
	if w.sizes.kind == "" {
		return
	}

	w.loose.Go(func() {
		for {
			select {
			case <-w.over:
				return
			case <-time.After(time.Second):
			}

			lives := 0
			for _, s := range w.slots {
				s.mu.Lock()
				lives += len(s.all)
				s.mu.Unlock()
			}

			n, err := w.account.Queue("tickets").Length(ctx)
			if most := int64((ticketsAtMost*w.lanes + 1) * lives); err != nil || n > most {
				w.check.reportViolation("tickets",
					"%d tickets in the queue for %d lanes and %d processes (%v)", n,
					w.lanes, lives, err)
			}

			w.check.addCounts(func(c *counts) { c.MostTickets = max(c.MostTickets, int(n)) })
		}
	})
}

// sweepIn runs a sweep. In large worlds it also checks the time of the sweep, except while storage
// has faults.
func (p *process) sweepIn(ctx context.Context) error {
	began, calm := time.Now(), p.w.isCalm()
	err := p.sweep.Sweep(ctx)
	took := time.Since(began)
	switch {
	case p.w.sizes.kind == "" || !calm && p.w.faults > 0:
		return err
	case took > sweepAtMost && !p.isDead():
		p.w.check.reportViolation("sweep", "%s took %s for %d lanes", p.name, took, p.w.lanes)
	}

	p.w.check.addCounts(func(c *counts) { c.LongestSweep = max(c.LongestSweep, took) })

	return err
}

// countEnded returns the number of final messages in a large world, which has no discarded
// messages.
func countEnded(n lane.Counts) int64 { return n.Delivered + n.Dead + n.Cancelled + n.Superseded }

// countTransaction counts the transactions on tail of a large world, and subtracts the committed
// messages from p.decided. The parameters before and now are the numbers of final messages before
// and after the transaction. The caller holds mu.
func (c *checker) countTransaction(p *process, number int, ops []storage.Op, before, now int64) {
	if c.w.sizes.kind == "" {
		return
	}

	if ops[0].Key == "!tail" {
		c.counts.Commits++
		p.decided.noteCommitted(number, now-before)
	}
}

// checkCommits checks the number of transactions on tail per message, in a large world. The caller
// holds mu.
func (c *checker) checkCommits() {
	if z := c.w.sizes; z.kind != "" &&
		float64(c.counts.Commits) > z.commit*float64(c.counts.Messages) {
		c.addViolation("cost", "%d transactions for %d messages", c.counts.Commits,
			c.counts.Messages)
	}
}

// TestLarge runs seeds of large worlds. The environment variable LARGE is the number of seeds, by
// default three, one for each kind. LARGE_FROM is the first seed, by default 1.
func TestLarge(t *testing.T) { runWorlds(t, "LARGE", 3, drawLarge) }
