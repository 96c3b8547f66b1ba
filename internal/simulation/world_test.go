package simulation_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage/memory"
)

// settings are what one seed runs.
type settings struct {
	instances, lanes, messages, keys int
	lease                            time.Duration
	timeout                          time.Duration // of one attempt
	attempts                         int
	faults                           float64       // probability of a storage fault
	trouble                          time.Duration // how long faults go on
	crashes, pauses, cuts, stops     int
	traps                            int
	large                            float64 // share of bodies that need a blob
	mutant                           string  // changes of the simulation's own; see mutants_test.go
}

func (s settings) settle() time.Duration { return lease.Margin(s.lease) }

// draw makes a seed's settings.
func draw(d *dice) settings {
	s := settings{
		instances: 2 + d.below("instances", 2), lanes: 1 + d.below("lanes", 3), messages: 15 + d.below("messages", 30), keys: 2 + d.below("keys", 6),
		lease: 15 * time.Second, timeout: d.between("timeout", time.Second, 6*time.Second), attempts: 2 + d.below("attempts", 4),
		faults: []float64{0, 0.01, 0.03, 0.1}[d.below("faults", 4)], trouble: d.between("trouble", 20*time.Second, 90*time.Second),
	}
	s.crashes, s.pauses, s.cuts, s.stops = d.below("crashes", 3), d.below("pauses", 3), d.below("cuts", 3), d.below("stops", 2)
	s.traps = d.below("traps", 4)
	s.large = []float64{0, 0, 0, 0.1}[d.below("large bodies", 4)]
	return s
}

// world is one run.
type world struct {
	settings
	dice     *dice
	account  *memory.Account
	cms      *fakeCMS
	check    *checker
	trace    *trace
	started  time.Time
	quiet    time.Time      // when the last fault had ended
	over     chan struct{}  // closed at the end: whoever stands still for good lets go
	loose    sync.WaitGroup // what goes on without anybody waiting: late writes, requests inside the CMS
	slots    []*slot
	upstream sync.WaitGroup
}

// trace is what happened, for replays.
type trace struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func (t *trace) add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%14.9f ", time.Since(t.began).Seconds())+fmt.Sprintf(format, args...))
}

// String gives the lines by time. What happens at one nanosecond has no order.
func (t *trace) String() string {
	slices.Sort(t.lines)
	return strings.Join(t.lines, "\n")
}

// calm says that the time of faults is over.
func (w *world) calm() bool { return time.Since(w.started) > w.trouble }

// outcome is what came of a run.
type outcome struct {
	violation *violation
	counts    counts
	trace     string
}

// run simulates one seed.
func run(t *testing.T, seed uint64, mutant string) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		d := newDice(seed)
		w := &world{settings: draw(d), dice: d, account: memory.New(time.Now), over: make(chan struct{}), started: time.Now()}
		w.mutant = mutant
		w.trace = &trace{began: w.started}
		w.check = newChecker(w)
		w.cms = &fakeCMS{w: w}
		w.live(t.Context())
		o = outcome{violation: w.check.first, counts: w.check.counts, trace: w.trace.String()}
	})
	return o
}

// bound is within what everything comes to rest after faults have ended: a lease, a
// ticket's or a sweep's minute, the CMS's longest pause and backoffs in a row.
const bound = 8 * time.Minute

func (w *world) live(ctx context.Context) {
	store := w.store(w.account.Table(), nil)
	if err := store.Open(ctx); err != nil {
		w.check.fail("setup", "%v", err)
		return
	}
	w.check.store = store
	for i := range w.instances {
		w.slots = append(w.slots, w.newSlot(i))
	}
	w.sendMessages(ctx)
	for _, s := range w.slots {
		s.plan()
	}
	if w.mutant == "an outsider writes tail" {
		w.meddle()
	}
	time.Sleep(w.trouble)
	w.upstream.Wait()
	for _, s := range w.slots {
		s.plans.Wait()
	}
	w.quiet = time.Now()
	w.check.finish(ctx, w.settles(ctx))
	w.end(ctx)
}

func (w *world) store(table *memory.Table, draw func() float64) *lane.Store {
	return &lane.Store{Table: table, Bodies: w.account.Blobs(), Lanes: w.lanes, Now: time.Now, Rand: draw}
}

// settles waits until everything has come to rest, and stays so while what is late arrives.
func (w *world) settles(ctx context.Context) bool {
	for end := w.quiet.Add(bound); time.Now().Before(end) && w.check.ok(); {
		if !w.atRest(ctx) {
			time.Sleep(2 * time.Second)
			continue
		}
		w.check.count(func(c *counts) { c.Longest = time.Since(w.quiet) })
		time.Sleep(w.dice.between("afterwards", 100*time.Millisecond, 20*time.Second))
		if w.atRest(ctx) {
			return true
		}
	}
	return false
}

func (w *world) atRest(ctx context.Context) bool {
	for n := range w.lanes {
		c, err := w.check.store.Control(ctx, n)
		if err != nil || c.Waiting() != 0 {
			return false
		}
	}
	return true
}

// end stops everything: a run may leave nothing behind.
func (w *world) end(ctx context.Context) {
	close(w.over)
	for _, s := range w.slots {
		s.end(ctx)
	}
	w.loose.Wait()
	time.Sleep(time.Minute) // what had begun to wait gives up
}

var quietLog = slog.New(slog.DiscardHandler)
