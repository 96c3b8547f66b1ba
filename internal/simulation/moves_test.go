package simulation_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/lease"
)

// TestMoves simulates runs without faults. In most of them the platform removes instances: it stops
// their hosts, drains their hosts, or ends idle instances. A drained host gets no more tickets, and
// ends when it has no invocation in flight. In most runs each lane has work all the time, so that
// the checker notices a lane without progress. The checker also notices a message that is sent
// twice.

// leaving is the way in which the platform removes instances in a run of TestMoves. Other runs have
// the zero value.
type leaving struct {
	kind   leavingKind
	groups bool // each instance runs only one group of functions; see groupOf
	unseen bool // processes do not notice that their host stops
}

type leavingKind string

const (
	hostStops leavingKind = "hosts stop"
	drained   leavingKind = "instances are drained"
	inUse     leavingKind = "instances are drained, and still get posts"
	idleEnds  leavingKind = "idle instances are ended"
	alone     leavingKind = "one instance lives on"
	trickles  leavingKind = "groups live on, and one lane seldom has a message"
	oneByOne  leavingKind = "groups live on, and messages come one at a time"
)

// group is the group of functions that an instance runs.
type group string

const (
	everything  group = ""
	httpGroup   group = "http"
	ticketGroup group = "process"
)

func (g group) takesTickets() bool { return g != httpGroup }
func (g group) runsSweep() bool    { return g != httpGroup }

// groupOf returns the group of a slot. If the run has groups, the first two slots run the HTTP
// functions, and the other slots run all other functions.
func (m leaving) groupOf(slot int) group {
	switch {
	case !m.groups:
		return everything
	case slot < 2:
		return httpGroup
	}
	return ticketGroup
}

const (
	// standsAtMost is the longest time for which a lane with work may stall when its instance ends
	// in an orderly way. Another instance must first poll the queue, which each instance does after
	// 2 to 6 s. The bound adds 2 s.
	standsAtMost = 8 * time.Second
	// standsAlone is the longest time for which a lane with work may stall if the run has only one
	// instance, which does not end. The lane then has the same holder all the time.
	standsAlone = 500 * time.Millisecond
	// waitsInGroups is the longest wait of a message in seldomLane if no instance ends. It is
	// longer than 0.8 s, because a process that has claimed the lane looks at the lane only each
	// 0.8 s.
	waitsInGroups = 3 * time.Second
	// unattendedAtMost is the longest time for which an instance of HTTP functions may keep a lane.
	// The lane must move to an instance that takes tickets. The time is the sum of these:
	//
	//   - 2 s until the holder enqueues a ticket
	//   - 2 to 6 s until another instance polls the queue
	//   - 1 s until the holder sees the claim
	//   - 1 s until the process that wrote the claim sees that the lane is free
	//   - the time for a write that is under way
	unattendedAtMost = 12 * time.Second
	// idleFor is the time without a post after which the platform ends the instances of HTTP
	// functions.
	idleFor = 30 * time.Second
)

// waitsAtMost returns the longest wait of a message in seldomLane.
func (m leaving) waitsAtMost() time.Duration {
	if m.kind == trickles {
		return waitsInGroups
	}
	return standsAtMost
}

// drawMoves draws the settings of a run. The seven kinds of leaving take turns from seed to seed.
func drawMoves(d *dice) settings {
	s := settings{
		instances: 2 + d.drawBelow("instances", 2), lanes: 1 + d.drawBelow("lanes", 2), keys: 2000,
		lease: 15 * time.Second, attempts: 3, timeout: 5 * time.Second,
		backoff: drain.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second},
		trouble: 2 * time.Minute,
		bad:     [2]int{-1, -1}, refusedRow: -1,
	}

	s.settle = lease.Margin(s.lease)
	s.leaving.kind = []leavingKind{hostStops, drained, idleEnds, alone, inUse, trickles, oneByOne}[d.seed%7]
	switch s.leaving.kind {
	case idleEnds, trickles, oneByOne:
		s.leaving.groups = true
	case hostStops, drained:
		s.leaving.groups = d.drawChance("groups", 0.3)
	}

	s.leaving.unseen = s.leaving.kind == hostStops && d.drawChance("unseen", 0.2)
	if s.leaving.groups {
		s.instances = 4
	}

	if s.leaving.kind == alone {
		s.instances = 1
	}

	s.messages = 1400 * s.lanes // enough to keep each lane busy until the last instance was removed
	switch {
	case s.leaving.hasSeldomLane():
		s.lanes, s.messages, s.trouble = 2, 2900, 4*time.Minute
	case s.leaving.kind == oneByOne:
		// a lane gets a message each 0.7 s, so its holder seldom gives the lane up
		s.messages = 170 * s.lanes
	}

	return s
}

// seldomLane is a lane that, in some runs, gets a message only every few seconds. The lane is often
// free, and the first process that looks at the lane takes it.
const seldomLane = 1

func (m leaving) hasSeldomLane() bool { return m.kind == inUse || m.kind == trickles }

// drawMoveKey draws the key of a message. If the run has a seldomLane, about one message in thirty
// goes into that lane.
func (w *world) drawMoveKey() string {
	hasSeldom := w.leaving.hasSeldomLane()
	isSeldom := hasSeldom && w.dice.drawChance("seldom", 1./30)
	for {
		key := fmt.Sprint("k", w.dice.drawBelow("key", w.keys))
		if !hasSeldom || isSeldom == (lane.Of(key, w.lanes) == seldomLane) {
			return key
		}
	}
}

// drawMoveStart draws the time at which a message is posted: at any time of the run if its lane
// gets one message at a time, otherwise in the first five seconds.
func (w *world) drawMoveStart(i int, key string) time.Duration {
	limit := 5 * time.Second
	if w.leaving.kind == oneByOne || w.leaving.hasSeldomLane() &&
		lane.Of(key, w.lanes) == seldomLane {
		limit = w.trouble
	}
	return w.dice.drawBetween(fmt.Sprint("start ", i), 0, limit)
}

// pickReceiver returns the slot that gets a post. In runs of the kind inUse a drained instance gets
// the post, if there is a drained instance. All other posts in runs of TestMoves go to an instance
// that is not about to end.
func (w *world) pickReceiver(name string) *slot {
	n := w.dice.drawBelow("to "+name, len(w.slots))
	if s := w.pickAway(name); s != nil {
		return s
	}

	if w.receiver != nil {
		return w.receiver
	}
	if w.leaving.kind == "" {
		return w.slots[n]
	}

	for _, s := range w.slots {
		if p := s.currentProcess(); w.leaving.kind == inUse && p.polling.Err() != nil &&
			!p.isDead() {
			return s
		}
	}

	for i := range w.slots {
		s := w.slots[(n+i)%len(w.slots)]
		if p := s.currentProcess(); w.leaving.groupOf(s.number) != ticketGroup &&
			p.polling.Err() == nil {
			return s
		}
	}

	return w.slots[0]
}

// planMoves removes an instance each 30 to 40 s, and starts another one in its place. This interval
// is long enough for the lanes of the removed instance to move. In runs of the kind idleEnds
// planMoves removes all instances of HTTP functions, and starts no others.
func (w *world) planMoves() {
	switch w.leaving.kind {
	case "", alone, trickles:
		return
	case oneByOne:
		w.upstream.Go(w.watchUnattended)
		return
	}

	w.upstream.Go(func() {
		for !w.isCalm() {
			time.Sleep(w.dice.drawBetween("until the next goes", 30*time.Second, 40*time.Second))
			s := w.pickLeaver()
			switch w.leaving.kind {
			case hostStops:
				s.stopHost()
			case drained, inUse:
				s.drainHost()
			default:
				w.endIdleOnes()
				continue
			}

			w.check.addCounts(func(c *counts) { c.OrderlyEnds++ })
			time.Sleep(w.dice.drawBetween("until it is back", 100*time.Millisecond, 5*time.Second))
			s.startProcess()
		}
	})
}

// pickLeaver returns the slot that ends next. In runs of the kind inUse that slot holds the busy
// lane and has an invocation, because only a process with an invocation can notice the drain of its
// host.
func (w *world) pickLeaver() *slot {
	for w.leaving.kind == inUse && !w.isCalm() {
		for _, s := range w.slots {
			if p := s.currentProcess(); p.invocations.Load() > 0 &&
				slices.Contains(p.drainer.Held(), 1-seldomLane) {
				return s
			}
		}

		time.Sleep(w.dice.drawBetween("finds who goes", 100*time.Millisecond, time.Second))
	}

	return w.slots[w.dice.drawBelow("goes", len(w.slots))]
}

// stopHost simulates SIGTERM to the host. The host takes no more tickets, and waits up to ten
// seconds for invocations in flight. The process notices the stop and hands its lanes over. If
// leaving.unseen is set, the process does not notice the stop.
func (s *slot) stopHost() {
	w, p := s.w, s.currentProcess()
	w.trace.addLine("%s: its host stops", p.name)
	p.endPolls()
	var closed chan error
	if !w.leaving.unseen {
		closed = make(chan error, 1)
		p.host.Go(func() {
			time.Sleep(w.dice.drawBetween(p.name+" notices", 50*time.Millisecond,
				150*time.Millisecond))
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
			defer cancel()
			closed <- p.drainer.Close(ctx)
		})
	}

	time.Sleep(400 * time.Millisecond)

	for end := time.Now().Add(10 * time.Second); p.invocations.Load() > 0 &&
		time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}

	p.killProcess()
}

// drainHost drains the host of an instance as the platform does. The instance gets no more tickets,
// and is killed when it has no invocation in flight. In runs of the kind inUse the instance still
// gets posts, and is killed some seconds later.
func (s *slot) drainHost() {
	p := s.currentProcess()
	s.w.trace.addLine("%s is drained", p.name)
	p.endPolls()
	defer p.killProcess()
	defer p.awaitEndAfterDrain()

	for quiet := 0; quiet < 3; time.Sleep(50 * time.Millisecond) {
		if quiet++; p.invocations.Load() > 0 {
			quiet = 0
		}
	}
}

// awaitEndAfterDrain waits, in runs of the kind inUse, until the platform ends a process whose host
// is drained. The process must not hold a lane during that time.
func (p *process) awaitEndAfterDrain() {
	if p.w.leaving.kind != inUse {
		return
	}

	until := p.w.dice.drawBetween(p.name+" drained", 5*time.Second, 20*time.Second)
	for end := time.Now().Add(until); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if held := p.drainer.Held(); len(held) > 0 {
			p.w.check.reportViolation("unattended", "%s holds lanes %v after its host is drained",
				p.name, held)
		}
	}
}

// endIdleOnes kills the instances of HTTP functions, if the last post is older than idleFor.
func (w *world) endIdleOnes() {
	if time.Since(w.started) < 5*time.Second+idleFor {
		return
	}

	for _, s := range w.slots {
		if p := s.currentProcess(); w.leaving.groupOf(s.number) == httpGroup && !p.isDead() {
			p.killProcess()
			w.check.addCounts(func(c *counts) { c.IdleEnds++ })
		}
	}
}

// watchUnattended checks that no instance of HTTP functions keeps a lane for longer than
// unattendedAtMost. The check ends when the time in which messages are posted is over.
func (w *world) watchUnattended() {
	since := map[string]time.Time{} // when an instance began to hold a lane, by process and lane
	for ; !w.isCalm(); time.Sleep(100 * time.Millisecond) {
		held := map[string]time.Time{}
		for _, s := range w.slots {
			if w.leaving.groupOf(s.number) != httpGroup {
				continue
			}

			p := s.currentProcess()
			for _, number := range p.drainer.Held() {
				name := fmt.Sprintf("%s keeps lane %d", p.name, number)
				held[name] = cmp.Or(since[name], time.Now())
				if d := time.Since(held[name]); d > unattendedAtMost {
					w.check.reportViolation("unattended",
						"%s without an invocation for %s", name, d)
				}
			}
		}

		since = held
	}
}

// checkTakenOnce makes a check in runs of the kind oneByOne. A process that has handed a lane over
// may take the lane again only after another message was appended. The caller holds mu.
func (c *checker) checkTakenOnce(p *process, l *laneState, number int) {
	if c.w.leaving.kind == oneByOne && l.takenBy == p && l.taken == len(l.log) {
		c.addViolation("idle",
			"%s takes lane %d again, and no message was filed since it took it before", p.name,
			number)
	}
	l.takenBy, l.taken = p, len(l.log)
}

// checkMoved checks that no lane with work stalls, that no message is sent twice, and that no
// message waits too long in seldomLane. The caller holds mu.
func (c *checker) checkMoved(l *laneState, f *filed, r *request) {
	if c.w.leaving.kind == "" || c.w.leaving.unseen {
		return
	}

	if f.taken {
		c.addViolation("again", "%s sent seq %d of lane %d again", r.p.name, f.id.Seq, f.id.Lane)
	}

	waited := time.Since(f.filed)
	if c.w.leaving.hasSeldomLane() && f.id.Lane == seldomLane &&
		waited > c.w.leaving.waitsAtMost() {
		c.addViolation("waits", "seq %d of lane %d waited for %s until %s sent it", f.id.Seq,
			f.id.Lane, waited, r.p.name)
	}

	if l.busy.IsZero() || f.filed.After(l.busy) {
		return // the lane had no work
	}

	stood, limit := time.Since(l.busy), standsAtMost
	if c.w.leaving.kind == alone {
		limit = standsAlone
	}

	c.counts.LongestStand = max(c.counts.LongestStand, stood)
	if stood > limit {
		c.addViolation("stands", "lane %d stood for %s until %s sent seq %d", f.id.Lane, stood,
			r.p.name, f.id.Seq)
	}
}

// TestMoves runs 14 seeds, two of each kind of leaving, from seed 1 on. The environment variables
// MOVES and MOVES_FROM change the number and the first seed.
func TestMoves(t *testing.T) { runWorlds(t, "MOVES", 14, drawMoves) }
