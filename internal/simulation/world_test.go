package simulation_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/lane/outbox"
	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/testkit/linear"
)

// settings are the settings of a seed's simulated world.
type settings struct {
	instances, lanes, messages, keys int
	lease                            time.Duration
	// how long the CMS can continue a request that was cut off
	settle   time.Duration
	timeout  time.Duration // time limit of one attempt
	attempts int
	backoff  drain.Backoff
	// largest number of requests of all processes in a second; 0 = no limit
	rate int
	// largest number of simultaneous attempts of a process; 0 = no limit
	atOnce int
	// probability that an operation of storage has a fault
	faults float64
	// probability that storage cuts a page; below 0.05, 0.05 is used
	shortPages float64
	// probability that the CMS has a fault at a request
	cmsFaults float64
	// probability that the CMS refuses a request for good
	rejects float64
	// the CMS takes about a millisecond for a request
	swift   bool
	trouble time.Duration // time for which faults go on, from the start
	// two submissions, by number, that the CMS never takes; -1 = none
	bad [2]int

	// The numbers of faults of each instance. In a standstill, a process does nothing. In a cut, a
	// process cannot reach storage. In a stop, a process shuts down properly.
	crashes, standstills, cuts, stops int
	traps, jumps                      int // numbers of traps (see traps_test.go) and of clock jumps
	outages                           int // outages of storage, for all instances at once

	large          float64 // share of messages with a body that needs a blob
	scheduled      float64 // share of messages with a due time
	cancels, moves float64 // shares of messages: cancelled; given another due time
	// longest time from a post to a due time that is not one of moments
	horizon time.Duration
	// due times that many messages share, counted from the start
	moments   [3]time.Duration
	every     time.Duration // interval of the recurring message; 0 = there is none
	runs      int           // number of runs of a schedule by hand
	callbacks float64       // share of messages with a callback
	// a receiver of events gets an event for each dead message
	deaths                bool
	operators             int     // number of operators who replay dead messages
	forces, edits         float64 // shares of replays: forced; with another body
	bulk                  int     // number of bulk replays
	bulkForce, bulkCancel float64 // shares of bulk replays: forced; cancelled
	pauses                int     // number of pauses of lanes and keys
	forgets               int     // number of operators' requests to forget a version
	erasers               int     // number of operators who erase messages
	discarders            int     // number of operators who discard dead messages
	// number of messages with the same due time, long after the faults
	crowd int
	// approximate time that a request to storage takes; 0 = up to 6 ms
	storage time.Duration
	// time that a partition takes to write one row once the faults are over; 0 = none
	row time.Duration
	// number of messages refused at the end; HTTP status of these refusals
	refused, refusal int
	// time from the posts of the refused messages to the posts of others
	stand    time.Duration
	patience time.Duration // the setting delivery.patience; see docs/settings.md
	retryFor time.Duration // the setting delivery.retryFor; see least_time_test.go
	// time for which the CMS refuses a pair; 0 = the seed has none
	pairStands time.Duration
	// why the blocker cannot be delivered; empty = the seed has no blocker
	blocking blockingKind
	// time from the post of the blocker to the posts behind it
	blockedFor time.Duration
	grows      bool // days pass at the end, and retention removes messages
	// sequence number of a row of lane 0 that storage never removes; -1 = none
	refusedRow  int
	refusesBody bool // storage refuses to remove one body

	missing   missing  // see missing_test.go
	braking   *braking // see brakes_test.go
	absence   *absence // see recoveries_test.go; nil = the CMS is not away
	elsewhere bool     // see elsewhere_test.go
	hosting   hosting  // see host_test.go
	sizes     sizes    // see sizes_test.go
	leaving   leaving  // see moves_test.go
	chains    chaining // see chains_test.go
	killing   killing  // see killers_test.go
	batching  batching // see batches_test.go
	audits    auditing // see audits_test.go
	// isInFolder means that the embedded store has the rows; see account_test.go.
	isInFolder bool
	isDamaged  bool   // the lanes have damaged rows; see damage_test.go
	mutant     string // name of the mutant that is tried; see mutants_test.go
}

// drawSettings draws the settings of a usual world.
func drawSettings(d *dice) settings {
	s := settings{
		instances: []int{1, 2, 2, 3, 3, 4}[d.drawBelow("instances", 6)],
		lanes:     1 + d.drawBelow("lanes", 3),
		messages:  15 + d.drawBelow("messages", 30), keys: 2 + d.drawBelow("keys", 6),
		lease:    []time.Duration{15, 15, 15, 20, 30}[d.drawBelow("lease", 5)] * time.Second,
		timeout:  d.drawBetween("timeout", time.Second, 6*time.Second),
		attempts: 2 + d.drawBelow("attempts", 4),
		backoff: drain.Backoff{Min: d.drawBetween("backoff", 100*time.Millisecond, time.Second),
			Max: d.drawBetween("backoff", 2*time.Second, 15*time.Second)},
		faults:    []float64{0, 0.01, 0.03, 0.1}[d.drawBelow("faults", 4)],
		cmsFaults: []float64{0.05, 0.3, 0.3, 0.6}[d.drawBelow("cms faults", 4)],
		trouble:   d.drawBetween("trouble", 20*time.Second, 90*time.Second),
		large:     []float64{0, 0, 0, 0.1}[d.drawBelow("large bodies", 4)],
	}

	s.settle = lease.Margin(s.lease)
	if d.drawChance("long settle", 0.3) {
		s.settle += d.drawBetween("settle", 0, 3*time.Second)
	}

	s.drawLimits(d)
	s.crashes, s.standstills, s.cuts, s.stops = d.drawBelow("crashes", 3), d.drawBelow("pauses", 3),
		d.drawBelow("cuts", 3), d.drawBelow("stops", 2)
	s.traps, s.jumps = d.drawBelow("traps", 4), d.drawBelow("jumps", 3)
	if d.drawChance("outage", 0.2) {
		s.outages = 1 + d.drawBelow("outages", 2)
	}

	s.drawSchedules(d)
	s.drawRuns(d)
	s.drawReplays(d)
	s.drawBulkReplays(d)
	s.drawPauses(d)
	s.drawForgets(d)
	s.drawErasures(d)
	s.drawDiscards(d)
	s.drawReceivers(d)
	s.drawCrowd(d)
	s.drawRefusals(d)
	s.drawAges(d)
	s.drawHost(d)
	s.bad = [2]int{-1, -1}
	for i := range d.drawBelow("bad messages", 3) {
		s.bad[i] = d.drawBelow("bad", s.messages)
	}

	s.drawSteps(d)
	s.drawBlocking(d)
	s.drawMissing(d)
	s.drawRetryFor(d)
	s.drawAbsence(d)
	s.drawElsewhere(d)
	s.drawBrake(d)
	s.drawDamages(d)

	return s
}

// drawSteps sets Backoff.Steps, the exact waits between attempts, in a few seeds. The last step is
// longer than an hour, which is the longest pause of a lane. In such a seed, no message fails after
// the faults. So after the faults, each message waits for at most one step, and the run can end.
// Such a seed has no crowd, because a lane could pause for an hour when its crowd becomes due.
func (s *settings) drawSteps(d *dice) {
	if d.drawChance("steps", 0.04) {
		s.backoff.Steps = []time.Duration{d.drawBetween("first step", time.Second, 20*time.Second),
			d.drawBetween("last step", 62*time.Minute, 3*time.Hour)}
		s.bad, s.refused, s.grows, s.crowd = [2]int{-1, -1}, 0, false, 0
	}
}

// lastStep returns the last step of the backoff, or 0 if the seed has no steps.
func (s *settings) lastStep() time.Duration {
	if n := len(s.backoff.Steps); n > 0 {
		return s.backoff.Steps[n-1]
	}
	return 0
}

// drawLimits draws one of two settings for some seeds: many messages with a fast CMS, or a limit of
// simultaneous attempts.
func (s *settings) drawLimits(d *dice) {
	switch d.drawBelow("kind", 12) {
	case 0:
		s.swift, s.messages, s.keys = true, 150+d.drawBelow("rush", 250),
			20+d.drawBelow("many keys", 80)
	case 3, 4:
		s.atOnce = 1 + d.drawBelow("at once", 2)
	}
}

// world is the simulated world of one run.
type world struct {
	settings
	dice     *dice
	account  account
	cms      *fakeCMS
	chainCMS *chainCMS // used only in worlds of chains
	check    *checker
	trace    *trace
	posts    *posts
	rowTurns rowTurns
	bodies   knownBodies
	started  time.Time
	quiet    time.Time // time at which the last fault is over
	receiver *slot     // the instance that gets all posts; nil = any
	// end of the faults that follow a jump of days, in Unix nanoseconds; 0 = none
	rough atomic.Int64
	over  chan struct{} // closed at the end, so that the goroutines of killed processes return
	// goroutines that no caller waits for: late writes, requests inside the CMS
	loose    sync.WaitGroup
	slots    []*slot
	upstream sync.WaitGroup
}

// trace is the list of a run's events. Tests print it, or compare the traces of two runs of a seed.
type trace struct {
	mu     sync.Mutex
	began  time.Time
	isKept bool // false = lines are dropped, because they cost much time in runs of many seeds
	lines  []string
}

// isTraceWanted reports whether the trace of a run is printed or compared.
func isTraceWanted() bool {
	names := []string{"SEED", "REPLAY", "LARGE_TRACE", "MOVES_TRACE", "CHAINS_TRACE", "RATES_TRACE", "SHORT_TRACE",
		"KILLERS_TRACE", "AUDITS_TRACE", "BATCHES_TRACE"}
	return slices.ContainsFunc(names, func(name string) bool { return os.Getenv(name) != "" })
}

func (t *trace) addLine(format string, args ...any) {
	if !t.isKept {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%14.9f ", time.Since(t.began).Seconds())+
		fmt.Sprintf(format, args...))
}

// addTicketLine adds a line about a ticket, but only in runs of TestLarge, which checks the number
// of tickets. The order of such lines varies from run to run, so such lines would make
// TestSeeds_ReplayExactly fail.
func (t *trace) addTicketLine(format string, args ...any) {
	if os.Getenv("LARGE_TRACE") != "" {
		t.addLine(format, args...)
	}
}

// String returns the lines in the order of their times. Lines of the same nanosecond are in the
// order of their texts, because their real order varies from run to run.
func (t *trace) String() string {
	slices.Sort(t.lines)
	return strings.Join(t.lines, "\n")
}

// isCalm reports whether the time of faults is over.
func (w *world) isCalm() bool {
	return time.Since(w.started) > w.trouble && time.Now().UnixNano() > w.rough.Load()
}

// outcome is the result of a run.
type outcome struct {
	violation *violation
	counts    counts
	trace     string
}

// runSeed simulates the usual world of one seed.
func runSeed(t *testing.T, seed uint64, mutant string) outcome {
	return runSettings(t, seed, mutant, drawSettings)
}

// runSettings simulates one seed with the settings that the function draw returns.
func runSettings(t *testing.T, seed uint64, mutant string, draw func(*dice) settings) (o outcome) {
	var history *linear.History
	d := newDice(seed)
	defer watchForSpin(seed, d, spinLimit)()
	synctest.Test(t, func(t *testing.T) {
		w := &world{settings: draw(d), dice: d, posts: newPosts(), over: make(chan struct{}),
			started: time.Now()}
		var closeAccount func()
		w.account, closeAccount = openAccount(t, w.settings)
		defer closeAccount()
		w.mutant = mutant
		w.trace = &trace{began: w.started, isKept: isTraceWanted()}
		w.check = newChecker(w)
		w.cms = &fakeCMS{w: w}
		w.chainCMS = newChainCMS(w)
		w.liveThrough(t.Context())

		// an append of a killed process goes on for some seconds until it fails
		time.Sleep(time.Minute)
		o = outcome{violation: w.check.first, counts: w.check.counts, trace: w.trace.String()}
		history = &w.check.history.History
	})

	o.checkHistory(history, fmt.Sprint("seed-", seed))

	return o
}

// spinLimit is the longest real time for which a run is allowed to draw nothing from its seed. A
// running world draws thousands of times per second. A loaded machine slows it, but not by that
// much.
const spinLimit = time.Minute

// watchForSpin detects a goroutine that loops without a pause. During such a loop, virtual time
// does not advance, so the run would never end. If the world draws nothing for the limit,
// watchForSpin ends the test's process with a panic that prints all stacks. The caller calls stop
// after the run.
func watchForSpin(seed uint64, d *dice, limit time.Duration) (stop func()) {
	over := make(chan struct{})
	go func() {
		ticker := time.NewTicker(limit / 2)
		defer ticker.Stop()

		for seen, turns := uint64(0), 0; ; {
			select {
			case <-over:
				return
			case <-ticker.C:
			}

			if n := d.draws.Load(); n != seen {
				seen, turns = n, 0
			} else if turns++; turns == 2 {
				debug.SetTraceback("all")
				panic(fmt.Sprintf("seed %d: spins: virtual time has stood still for %s",
					seed, limit))
			}
		}
	}()

	return func() { close(over) }
}

// bound is the time within which all work must be done after the last fault and the last due time.
// It allows for these waits, one after the other: a lease, a minute until a ticket or the sweep,
// pauses for the CMS, backoffs, and the least time of attempts.
const bound = 9 * time.Minute

func (w *world) liveThrough(ctx context.Context) {
	store := w.newStore(w.account.Table(), nil)
	if err := store.Open(ctx); err != nil {
		w.check.reportViolation("setup", "%v", err)
		return
	}

	w.check.store = store
	if err := w.putSchedule(ctx); err != nil {
		w.check.reportViolation("setup", "schedule: %v", err)
		return
	}

	for i := range w.instances {
		w.slots = append(w.slots, w.newSlot(i))
	}

	w.watchSizes(ctx)
	w.sendMessages(ctx)
	w.sendCrowd(ctx)
	w.postBatches(ctx)
	w.startOperators(ctx)
	w.replayInBulk(ctx)
	w.startPauses(ctx)
	w.startForgets(ctx)
	w.damageLanes(ctx)
	w.startRuns(ctx)
	w.startForgettingIDs(ctx)
	w.startErasers(ctx)
	w.startAudits(ctx)
	w.startDiscarders(ctx)
	for _, s := range w.slots {
		s.planFaults()
	}

	w.planOutages()
	w.planMoves()
	w.startEditors()
	w.startScaling()
	if w.mutant == "an outsider writes tail" {
		w.meddleWithTail()
	}

	time.Sleep(w.trouble)
	w.upstream.Wait()
	for _, s := range w.slots {
		s.plans.Wait()
	}

	w.quiet = time.Now()
	w.check.checkAtRest(ctx, w.awaitRest(ctx) && w.fileRefused(ctx) && w.fileBlocker(ctx) &&
		w.fileMissing(ctx) && w.fileOutdated(ctx) && w.fileAway(ctx) && w.fileElsewhere(ctx) &&
		w.fileRejected(ctx) &&
		w.fileLast(ctx) && w.fileRated(ctx) && w.eraseAgain(ctx))

	w.letDaysPass(ctx)
	w.endWorld(ctx)
}

func (w *world) newStore(table storage.Table, draw func() float64) *lane.Store {
	return &lane.Store{Table: table, Bodies: w.account.Blobs(), Lanes: w.lanes,
		Fold: w.chains.foldRules(), Now: time.Now, Rand: draw}
}

// awaitRest waits until all work is done. Then it gives late requests some time to arrive, and
// looks for work again. It returns false if work is left at the end of the allowed time (see
// bound), or if a check has failed.
func (w *world) awaitRest(ctx context.Context) bool {
	for end := w.check.lastDue(w.quiet).Add(bound + w.lastStep()); time.Now().Before(end) &&
		w.check.hasNoViolation(); {
		if !w.isAtRest(ctx) {
			time.Sleep(2 * time.Second)
			continue
		}

		w.check.addCounts(func(c *counts) { c.Longest = max(c.Longest, time.Since(w.quiet)) })
		time.Sleep(w.dice.drawBetween("afterwards", 100*time.Millisecond, 20*time.Second))
		if w.isAtRest(ctx) {
			return true
		}
	}

	return false
}

func (w *world) isAtRest(ctx context.Context) bool {
	for n := range w.lanes {
		c, err := w.check.store.ReadControl(ctx, n)
		if err != nil || c.WaitingCount() != 0 || c.HasRequests() || outbox.MarkerOf(c) != "" {
			return false
		}
	}
	return w.isRecurringDone(ctx) && w.areBulkReplaysOver(ctx)
}

// endWorld ends all goroutines of the world, because synctest waits for each of them.
func (w *world) endWorld(ctx context.Context) {
	close(w.over)
	for _, s := range w.slots {
		s.endSlot(ctx)
	}
	w.loose.Wait()
	time.Sleep(10 * time.Minute) // within this time, callers that still wait give up
}

var discardLog = slog.New(slog.DiscardHandler)
