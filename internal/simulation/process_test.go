package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/functions/poison"
	tickets "weir/functions/process"
	"weir/internal/audit"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/limiter"
	"weir/internal/notify"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/residence"
	"weir/internal/residence/stay"
	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/storage"
	"weir/internal/storage/denial"
	"weir/internal/storage/timelimit"
	"weir/internal/sweeper"
	"weir/internal/ticket"
	"weir/internal/upkeep"
	"weir/internal/wake"
)

// slot is one instance of the platform. Its host runs one process after the other.
type slot struct {
	w      *world
	number int

	mu      sync.Mutex
	offset  time.Duration // error of the slot's clock: -1 s to 1 s
	jumped  time.Time     // when the offset last changed; zero = never
	current *process
	all     []*process
	plans   sync.WaitGroup
	// full during a fault; not a mutex, because a wait for a mutex stops virtual time
	turn   chan struct{}
	deaths deaths // see killers_test.go
}

// process is one process of the program. Its parts are wired as in internal/app.
type process struct {
	w       *world
	slot    *slot
	name    string
	now     func() time.Time
	store   *lane.Store
	appends *lane.Appender
	permit  *residence.Permit
	drainer *drain.Drainer
	bell    *ticket.Sender
	process *tickets.Function
	poison  *poison.Function
	sweep   *sweeper.Sweeper
	upkeep  *upkeep.Keeper
	runner  *recur.Runner
	notify  *notify.Sender
	carrier *replay.Runner
	audit   *audit.Log // used only in worlds of audits
	signIn  *signin.Keeper
	limiter *limiter.Limiter // nil = the world has no rate
	// the requests of a contract's chain; nil = the world has no chains
	mostRequests func(contract string) int

	platform
	decided *decided

	listening context.Context // ends when the process stops or is killed; context of the triggers
	deafen    context.CancelFunc
	// after it ends, the host takes no ticket and calls no sweep; child of listening
	polling  context.Context
	endPolls context.CancelFunc
	host     sync.WaitGroup // goroutines of the host
	killed   chan struct{}

	mu       sync.Mutex
	dead     bool
	requests int           // requests to the CMS that are under way
	resume   chan struct{} // closed when a stall ends; nil = the process is not stalled
	standing []*standing
	resumed  time.Time
	cutUntil time.Time // until this time, the operations that match onlyCut fail
	// beginning of the names of the operations that fail; empty = all operations
	onlyCut string
	// kills or stalls the process at its next operation of a certain kind; nil = none
	trap *trap
	// time until which the process may trust a lease, by the lease's name
	trust map[string]time.Time
}

// standing is a goroutine of a stalled process. After the stall, the goroutines go on one after the
// other, in the order in which they stopped. Goroutines that stopped in the same nanosecond go on
// in the order of their names, because the seed does not decide which of them stopped first.
type standing struct {
	since time.Time
	name  string
	waits time.Duration // time from the end of the stall until the goroutine goes on
}

func (w *world) newSlot(number int) *slot {
	s := &slot{w: w, number: number, turn: make(chan struct{}, 1),
		offset: w.dice.drawBetween(fmt.Sprint("clock ", number), -time.Second, time.Second)}
	if w.killing.ends > 0 {
		s.restartProcesses()
	}

	s.startProcess()
	return s
}

func (s *slot) startProcess() {
	w := s.w
	p := &process{w: w, slot: s, name: fmt.Sprintf("p%d.%d", s.number, len(s.all)+1),
		killed: make(chan struct{}), trust: map[string]time.Time{}}
	p.now, p.decided = s.readClock, &decided{w: w, n: map[int]int64{}}
	p.readyAt = time.Now().Add(w.dice.drawBetween(p.name+" ready", 0, w.hosting.cold))
	p.listening, p.deafen = context.WithCancel(context.Background())
	p.polling, p.endPolls = context.WithCancel(p.listening)
	p.signIn, p.limiter = p.newSignIn(), p.newLimiter()
	single, err := steps.New(steps.Config{URL: "http://cms.test/content", Method: "POST",
		Timeout: w.timeout, Now: p.now,
		Transport: p.newTransport(w.cms.newTransport(p)), Secrets: p.signIn.Secrets})
	if err != nil {
		panic(err) // cannot happen: the settings above are valid
	}

	p.store = &lane.Store{Table: p.newTable(""), Bodies: denial.Blobs(timelimit.Blobs(blobPort{p})),
		Epoch: w.check.store.Epoch, Lanes: w.lanes, Fold: w.chains.foldRules(), Now: p.now,
		Rand: w.dice.newSource(p.name + " store"), Contracts: w.contractsNow()}
	p.bell = ticket.New(ticket.Config{Queue: timelimit.Queue(queuePort{w.account.Queue("tickets"), p}),
		Epoch: p.store.Epoch, Now: p.now, Rand: w.dice.newSource(p.name + " bell")})
	p.permit = residence.NewPermit(p.now)
	p.drainer = drain.New(drain.Config{
		Store: p.store, Leases: p.newLeases(), Sender: p.newChainSender(single), Tickets: p.bell,
		Lease:    w.lease,
		Settle:   w.settle,
		Attempts: w.attempts, Limiter: p.limiter, Requests: p.countRequests, AtOnce: w.atOnce,
		Observer: p.decided, Backoff: w.backoff, Patience: w.patience,
		RetryFor: func(string) time.Duration { return w.retryFor }, Brake: w.braking.get(),
		Now:  p.now,
		Rand: w.dice.newSource(p.name + " drain"), Log: discardLog,
		Permit: p.permit, Remembers: func(string) bool { return w.chains.remembers },
	})

	p.appends = lane.NewAppender(p.store, discardLog)
	p.appends.OnFiled, p.appends.OnWake = p.drainer.OfferAppended, p.drainer.WakeOffered
	p.runner = runnerOf(&recur.Store{Table: p.newTable(""), Bodies: p.store.Bodies, Now: p.now},
		recurringLog{p.appends, p.store.Messages()},
		wake.Waker{Drainer: p.drainer, Tickets: p.bell}.Filed(),
		w.dice.newSource(p.name+" recur"))

	p.process = &tickets.Function{Answerer: &stay.Answerer{Drainer: p.drainer, Permit: p.permit,
		Tickets: p.bell,
		Lanes:   w.lanes, Lease: w.lease, Now: p.now, Logger: discardLog}, Logger: discardLog}
	p.poison = &poison.Function{Tickets: p.bell, Lanes: w.lanes, Observer: ignorePoisoned{},
		Logger: discardLog}
	p.notify = p.newNotifier()
	p.store.Notifier = p.notify
	p.carrier = p.bulkCarrier()
	p.audit = p.newAuditLog()
	p.upkeep = p.newUpkeep()
	p.sweep = &sweeper.Sweeper{Log: p.store, Waker: p.drainer, Upkeep: p.upkeep,
		Schedules: p.runner,
		Observe: func(_ context.Context, number int, c lane.Control) {
			p.notify.ObserveLane(number, c)
		},
		Resume: func(_ context.Context, first lane.Control) { p.carrier.ResumeOrphans(first) },
		Lanes:  w.lanes, Now: p.now}

	s.mu.Lock()
	s.current, s.all = p, append(s.all, p)
	s.mu.Unlock()
	w.trace.addLine("%s starts", p.name)
	w.check.noteDisturbance()
	p.serveTriggers()
}

func (s *slot) readClock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.offset)
}

// nowAtMost returns the latest time that the process can use as the current time. The process may
// have read its clock, and then waited for storage while the clock jumped back by up to 2 s. So
// nowAtMost adds 2 s for some time after a jump.
func (p *process) nowAtMost() time.Time {
	now := p.now()
	p.slot.mu.Lock()
	defer p.slot.mu.Unlock()
	if !p.slot.jumped.IsZero() && time.Since(p.slot.jumped) < 3*hangs {
		now = now.Add(2 * time.Second)
	}
	return now
}

// awaitRunning waits while the process is stalled, and then returns true. If the process is killed,
// awaitRunning blocks until the run ends, and then returns false. So no goroutine of a killed
// process goes on during the run. The parameter name is the name of the waiting goroutine.
func (p *process) awaitRunning(name string) bool {
	for {
		p.mu.Lock()
		dead, resume := p.dead, p.resume
		me := &standing{since: time.Now(), name: name}
		if resume != nil {
			p.standing = append(p.standing, me)
		}

		p.mu.Unlock()

		switch {
		case dead:
			<-p.w.over
			return false
		case resume == nil:
			return true
		}

		select {
		case <-resume:
			time.Sleep(me.waits)
		case <-p.killed:
		}
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// killProcess ends the process as SIGKILL does.
func (p *process) killProcess() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.dead {
		p.dead = true
		close(p.killed)
		p.deafen()
		p.w.trace.addLine("%s killed", p.name)
	}
}

// standStillFor stalls the process for the time d: its goroutines stop, and then go on as if no
// time had passed.
func (p *process) standStillFor(d time.Duration) {
	p.standStill()
	time.Sleep(d)
	p.goOn()
}

func (p *process) standStill() {
	p.mu.Lock()
	p.resume, p.standing = make(chan struct{}), nil
	p.mu.Unlock()
	p.w.trace.addLine("%s stands still", p.name)
}

// goOn ends a stall.
func (p *process) goOn() {
	p.mu.Lock()
	slices.SortFunc(p.standing, func(a, b *standing) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.name, b.name))
	})
	for i, s := range p.standing {
		s.waits = time.Duration(i+1) * time.Microsecond
	}

	close(p.resume)
	p.resume, p.resumed = nil, time.Now()
	p.mu.Unlock()
	p.w.trace.addLine("%s goes on", p.name)
	p.w.check.noteDisturbance()
}

// isCutOff reports whether an operation cannot reach storage now.
func (p *process) isCutOff(op string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.cutUntil) && strings.HasPrefix(op, p.onlyCut)
}

// noteGrant records that storage has granted a lease. The parameter asked is the time at which the
// process sent the request, and length is the length of the lease.
func (p *process) noteGrant(name string, asked time.Time, length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A late answer to an older request must not shorten the trust.
	if until := asked.Add(length - lease.Margin(length)); until.After(p.trust[name]) {
		p.trust[name] = until
	}
}

// trustedUntil returns the time until which the process may trust a lease. The result stoodStill is
// true if the process is stalled now, or if its last stall ended after that time. A stalled process
// cannot notice the end of its trust.
func (p *process) trustedUntil(name string) (until time.Time, stoodStill bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trust[name], p.resume != nil || (!p.resumed.IsZero() && p.resumed.After(p.trust[name]))
}

// serveTriggers simulates the host: its goroutines take tickets and call the sweep.
func (p *process) serveTriggers() {
	group := p.w.leaving.groupOf(p.slot.number)
	if p.w.mutant != "watch and sweep off" && group.runsSweep() {
		p.host.Go(func() {
			for p.polling.Err() == nil {
				_ = p.invokeFunction("sweep", p.sweepIn)
				p.waitForPoll(time.Minute)
			}
		})
	}

	if group.takesTickets() {
		p.host.Go(func() { p.listenToQueue("tickets", p.process.Process) })
		p.host.Go(func() { p.listenToQueue("poison", p.poison.Take) })
	}
}

func (p *process) waitForPoll(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.polling.Done():
	}
}

// planFaults causes the slot's faults at drawn times.
func (s *slot) planFaults() {
	w, name := s.w, fmt.Sprint("slot ", s.number)
	s.planHost()
	s.planDeployments()

	for range w.crashes {
		s.planAt(name+" crash", func() {
			s.currentProcess().killProcess()
			time.Sleep(w.dice.drawBetween(name+" down", 100*time.Millisecond, 25*time.Second))
			s.startProcess()
			w.check.addCounts(func(c *counts) { c.Crashes++ })
		})
	}

	for range w.standstills {
		s.planAt(name+" pause", func() {
			s.currentProcess().standStillFor(w.dice.drawBetween(name+" still", time.Second,
				40*time.Second))
			w.check.addCounts(func(c *counts) { c.Standstills++ })
		})
	}

	for range w.cuts {
		s.planAt(name+" cut", func() {
			p := s.currentProcess()
			only := []string{"", "renew", "transact"}[w.dice.drawBelow(name+" what", 3)]
			d := w.dice.drawBetween(name+" cut for", time.Second, 40*time.Second)
			p.mu.Lock()
			p.cutUntil, p.onlyCut = time.Now().Add(d), only
			p.mu.Unlock()
			w.trace.addLine("%s is cut off from storage (%q) for %s", p.name, only, d)
			w.check.addCounts(func(c *counts) { c.Cuts++ })
		})
	}

	for range w.jumps {
		s.planAt(name+" jump", func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.offset, s.jumped = w.dice.drawBetween(name+" clock", -time.Second, time.Second),
				time.Now()
			w.trace.addLine("the clock of slot %d jumps, and is %s off", s.number, s.offset)
		})
	}

	for range w.traps {
		s.planAt(name+" trap", s.setTrap)
	}

	for range w.stops {
		s.planAt(name+" stop", func() {
			p := s.currentProcess()
			if p.isDead() { // the platform has ended the process
				return
			}

			p.stopInOrder()
			s.startProcess()
			w.check.addCounts(func(c *counts) { c.Stops++ })
		})
	}
}

// stopInOrder ends the process as SIGTERM does.
func (p *process) stopInOrder() {
	p.deafen()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	p.w.trace.addLine("%s stops", p.name)
	_ = p.runner.Close(ctx)
	_ = p.carrier.Close(ctx)
	_ = p.drainer.Close(ctx)
	p.closeLimiter()
	_ = p.notify.Close(ctx)
	_ = p.upkeep.Close(ctx)
	p.killProcess()
}

// planOutages causes outages of storage. Each outage cuts all instances off from storage at the
// same time.
func (w *world) planOutages() {
	for range w.outages {
		when, d := w.dice.drawBetween("outage at", 0, w.trouble),
			w.dice.drawBetween("outage for", time.Second, 40*time.Second)
		w.loose.Go(func() {
			time.Sleep(when)
			w.trace.addLine("storage is away for %s", d)

			for _, s := range w.slots {
				p := s.currentProcess()
				p.mu.Lock()
				p.cutUntil, p.onlyCut = time.Now().Add(d), ""
				p.mu.Unlock()
			}
		})
	}
}

// meddleWithTail breaks the rule that only the holder writes tail: it lets any process write tail.
func (w *world) meddleWithTail() {
	for i := range 3 {
		w.loose.Go(func() {
			time.Sleep(w.dice.drawBetween("meddle", 0, w.trouble))
			p := w.slots[i%len(w.slots)].currentProcess()
			_, _ = w.check.applyTransaction(p, "", fmt.Sprintf("%d.0", w.check.store.Epoch),
				[]storage.Op{{Kind: storage.Merge, Key: "!tail",
					Values: map[string]any{"PausedUntil": time.Now()}}})
		})
	}
}

// planAt calls do at a drawn time within the time of faults. The calls for one slot do not overlap.
func (s *slot) planAt(name string, do func()) {
	when := s.w.dice.drawBetween(name+" when", 0, s.w.trouble)
	s.plans.Go(func() {
		time.Sleep(when)
		s.takeTurn(name)
		do()
		<-s.turn
	})
}

// takeTurn waits until no other planned call of the slot is under way. The caller receives from
// s.turn afterwards.
func (s *slot) takeTurn(name string) {
	select {
	case s.turn <- struct{}{}:
	default:
		s.turn <- struct{}{}
		// Without this pause, the call would begin in the same nanosecond in which the previous
		// call ended.
		time.Sleep(s.w.dice.drawBetween(name+" turn", time.Microsecond, time.Millisecond))
	}
}

func (s *slot) currentProcess() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// endSlot kills the processes of the slot, and waits until their goroutines have ended.
func (s *slot) endSlot(context.Context) {
	s.plans.Wait()
	s.stopRestarts()

	for _, p := range s.all {
		p.killProcess()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		_ = p.runner.Close(ctx)
		_ = p.carrier.Close(ctx)
		_ = p.drainer.Close(ctx)
		p.closeLimiter()
		_ = p.notify.Close(ctx)
		_ = p.upkeep.Close(ctx)
		cancel()
		p.host.Wait()
		p.bell.Wait(context.Background())
	}
}

// ignorePoisoned is a poison.Observer that counts nothing.
type ignorePoisoned struct{}

// Poisoned implements poison.Observer.
func (ignorePoisoned) Poisoned() {}
