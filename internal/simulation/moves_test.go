package simulation_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lease"
)

// Worlds in which nothing breaks, and instances go: the platform stops their hosts, drains them, or
// ends those that have had no invocation for a while. Each lane has work all the time, so a lane
// that stands still is seen, and no message may be written twice.

// leaving is how instances go; zero = a world of another kind.
type leaving struct {
	kind   leavingKind
	groups bool // of functions, on instances of their own
	unseen bool // processes cannot see that their host stops
}

type leavingKind string

const (
	hostStops leavingKind = "hosts stop"
	drained   leavingKind = "instances are drained"
	idleEnds  leavingKind = "idle instances are ended"
	alone     leavingKind = "one instance lives on"
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

// groupOf returns the group of a slot: the first two run HTTP functions, if there are groups.
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
	// standsAtMost is how long a lane may stand when its instance goes in order: until another one
	// polls (2 to 6 s here), and 2 s.
	standsAtMost = 8 * time.Second
	// standsAlone is that bound on a host that lives on alone: its lanes do not move.
	standsAlone = 500 * time.Millisecond
	// idleFor is how long an instance has had no invocation when the platform ends it.
	idleFor = 30 * time.Second
)

// drawMoves makes the settings of a seed. The kinds take turns.
func drawMoves(d *dice) settings {
	s := settings{
		instances: 2 + d.drawBelow("instances", 2), lanes: 1 + d.drawBelow("lanes", 2), keys: 2000,
		lease: 15 * time.Second, attempts: 3, timeout: 5 * time.Second,
		backoff: drain.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}, trouble: 2 * time.Minute,
		bad: [2]int{-1, -1}, refusedRow: -1,
	}
	s.settle = lease.Margin(s.lease)
	s.leaving.kind = []leavingKind{hostStops, drained, idleEnds, alone}[d.seed%4]
	s.leaving.groups = s.leaving.kind == idleEnds || s.leaving.kind != alone && d.drawChance("groups", 0.3)
	s.leaving.unseen = s.leaving.kind == hostStops && d.drawChance("unseen", 0.2)
	if s.leaving.groups {
		s.instances = 4
	}
	if s.leaving.kind == alone {
		s.instances = 1
	}
	s.messages = 1400 * s.lanes // for a little more than the time of trouble
	return s
}

// pickReceiver returns the slot that a submission is posted to: one that is not on its way out.
func (w *world) pickReceiver(name string) *slot {
	n := w.dice.drawBelow("to "+name, len(w.slots))
	if w.leaving.kind == "" {
		return w.slots[n]
	}
	for i := range w.slots {
		s := w.slots[(n+i)%len(w.slots)]
		if p := s.currentProcess(); w.leaving.groupOf(s.number) != ticketGroup && p.polling.Err() == nil {
			return s
		}
	}
	return w.slots[0]
}

// planMoves lets one instance after the other go, with enough time between that another has its
// lanes, and an invocation for them.
func (w *world) planMoves() {
	if w.leaving.kind == "" || w.leaving.kind == alone {
		return
	}
	w.upstream.Go(func() {
		for !w.isCalm() {
			time.Sleep(w.dice.drawBetween("until the next goes", 30*time.Second, 40*time.Second))
			s := w.slots[w.dice.drawBelow("goes", len(w.slots))]
			switch w.leaving.kind {
			case hostStops:
				s.stopHost()
			case drained:
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

// stopHost is a SIGTERM to the host: it closes its socket, and takes no ticket any more. The process
// sees that, if it can. An invocation in flight is waited for for ten seconds.
func (s *slot) stopHost() {
	w, p := s.w, s.currentProcess()
	w.trace.addLine("%s: its host stops", p.name)
	p.endPolls()
	var closed chan error
	if !w.leaving.unseen {
		closed = make(chan error, 1)
		p.host.Go(func() {
			time.Sleep(w.dice.drawBetween(p.name+" notices", 50*time.Millisecond, 150*time.Millisecond))
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
			defer cancel()
			closed <- p.drainer.Close(ctx)
		})
	}
	time.Sleep(400 * time.Millisecond)
	for end := time.Now().Add(10 * time.Second); p.invocations.Load() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	p.killProcess()
}

// drainHost ends an instance as the platform does after a drain: it gets no tickets any more, and
// is killed as soon as none of its invocations is in flight.
func (s *slot) drainHost() {
	p := s.currentProcess()
	s.w.trace.addLine("%s is drained", p.name)
	p.endPolls()
	for quiet := 0; quiet < 3; time.Sleep(50 * time.Millisecond) {
		if quiet++; p.invocations.Load() > 0 {
			quiet = 0
		}
	}
	p.killProcess()
}

// endIdleOnes kills the instances of HTTP functions: nothing has been posted for long enough.
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

// checkMoved checks that a lane does not stand still, and nothing is written twice, while instances go.
// The caller holds mu.
func (c *checker) checkMoved(l *laneState, f *filed, r *request) {
	if c.w.leaving.kind == "" || c.w.leaving.unseen {
		return
	}
	if f.taken {
		c.addViolation("again", "%s sent seq %d of lane %d again", r.p.name, f.id.Seq, f.id.Lane)
	}
	if l.busy.IsZero() || f.filed.After(l.busy) {
		return // it had no work
	}
	stood, limit := time.Since(l.busy), standsAtMost
	if c.w.leaving.kind == alone {
		limit = standsAlone
	}
	c.counts.LongestStand = max(c.counts.LongestStand, stood)
	if stood > limit {
		c.addViolation("stands", "lane %d stood for %s until %s sent seq %d", f.id.Lane, stood, r.p.name, f.id.Seq)
	}
}

// TestMoves runs MOVES seeds from MOVES_FROM on: unless it is said otherwise two of each kind.
func TestMoves(t *testing.T) {
	seeds, from, step := readNumber(t, "MOVES", 8), readNumber(t, "MOVES_FROM", 1), readNumber(t, "STEP", 1)
	var sum counts
	began := time.Now()
	for i := range seeds {
		seed := from + i*step
		o := runSettings(t, seed, os.Getenv("MUTANT"), drawMoves)
		sum.addAll(o.counts)
		if o.violation != nil {
			t.Errorf("seed %d: %s: %.2000s", seed, o.violation.kind, o.violation.text)
			if os.Getenv("MOVES_TRACE") != "" {
				fmt.Println(o.trace)
			}
			if os.Getenv("STOP") != "" {
				break
			}
		}
	}
	t.Logf("%d seeds of moves in %s: %+v", seeds, time.Since(began).Round(time.Millisecond), sum)
}
