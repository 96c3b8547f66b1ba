package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"weir/internal/invoke"
)

// This file simulates the platform: how many invocations a host runs at once and for how long, how
// the host treats a handler that is still starting, and when the platform ends an instance.

// These are the limits of a host and its handler. The first four are settings in host.json.
const (
	batchSize         = 16
	newBatchThreshold = 8 // the host takes more tickets only while it works on at most this many
	functionTimeout   = 5 * time.Minute
	retryDelay        = 5 * time.Second  // pause after a failed invocation
	lockedFor         = 10 * time.Minute // how long a ticket stays hidden after a host has taken it
	deathsAllowed     = 3                // a host gives up when so many of its handlers have died
	holdsAtMost       = 15 * time.Second // the longest time that a starting handler holds a request
	// functionTimeout in runs of TestMoves, whose invocations end within 60 s
	staysAtMost = 70 * time.Second
)

var errStarting, errHandlerGone = errors.New("503: the handler is starting"),
	errors.New("the handler is gone")

// hosting is the behaviour of the platform that only some runs have.
type hosting struct {
	cold     time.Duration // longest time until a handler is ready; 0 = handlers are ready at once
	deaths   int           // deaths of handlers in each instance; see deathsAllowed
	idleEnds int           // number of times that each instance is ended while it has no invocation
	scales   bool          // the platform starts and ends instances by the length of the queue
}

func (s *settings) drawHost(d *dice) {
	if d.drawChance("cold starts", 0.3) {
		s.hosting.cold = []time.Duration{time.Second, 4 * time.Second, 25 * time.Second}[d.drawBelow("cold", 3)]
	}

	if d.drawChance("handlers die", 0.3) {
		s.hosting.deaths = 1 + d.drawBelow("handler deaths", 4)
	}

	if d.drawChance("idle instances are ended", 0.3) {
		s.hosting.idleEnds = 1 + d.drawBelow("idle ends", 2)
	}

	s.hosting.scales = d.drawChance("scales", 0.2)
}

// platform is the state of a process's host.
type platform struct {
	readyAt time.Time
	// the handler is dead, but its host lives, and returns the handler's tickets
	hostLives atomic.Bool
	// number in flight: calls by the queue and the timer, and HTTP requests
	invocations atomic.Int32
}

// awaitReady waits until the handler is ready, because a starting handler holds requests. It
// returns false if the handler is not ready within holdsAtMost, or if the caller gives up.
func (p *process) awaitReady(ctx context.Context, name string) bool {
	left := time.Until(p.readyAt)
	if left <= 0 {
		return true
	}
	if !p.waitFor(ctx, min(left, holdsAtMost)) || left > holdsAtMost {
		return false
	}

	// Several callers may have waited for the same moment. So each caller now waits for a further
	// random time.
	return p.waitFor(ctx, p.w.dice.drawBetween(p.name+" opens "+name, time.Microsecond,
		5*time.Millisecond))
}

// invokeFunction calls a function for a trigger. The call fails when the handler dies. The call
// must end before functionTimeout: after that time a real host would kill the handler with all its
// other invocations.
func (p *process) invokeFunction(name string, function func(context.Context) error) error {
	p.invocations.Add(1)
	defer p.invocations.Add(-1)
	if !p.awaitReady(p.listening, name) {
		return errStarting
	}

	p.permit.MarkTriggered()
	done := make(chan error, 1)
	p.host.Go(func() { done <- function(p.listening) })
	timer := time.NewTimer(p.w.invocationLimit())
	defer timer.Stop()

	select {
	case err := <-done:
		return err
	case <-p.killed:
	case <-timer.C:
		p.w.check.reportViolation("timeout",
			"%s: an invocation of %s outlasts functionTimeout: the host kills the handler",
			p.name, name)
	}

	return errHandlerGone
}

// invocationLimit returns how long the host lets an invocation run.
func (w *world) invocationLimit() time.Duration {
	if w.leaving.kind != "" {
		return staysAtMost
	}
	return functionTimeout
}

// listenToQueue takes tickets from a queue as the host does. The host hides a ticket for ten
// minutes, deletes it after a success, returns it after a failure, and moves it to the poison queue
// after five failures. The host works on at most 16 + 8 tickets at a time.
func (p *process) listenToQueue(name string,
	function func(context.Context, invoke.Invocation) error) {
	queue := p.w.account.Queue(name)
	var running atomic.Int32
	for p.polling.Err() == nil {
		p.waitForPoll(p.w.dice.drawBetween(p.name+" poll "+name, 2*time.Second, 6*time.Second))
		if p.polling.Err() != nil {
			return
		}
		if running.Load() > newBatchThreshold {
			continue
		}

		got, err := queue.Get(context.Background(), batchSize, lockedFor)
		if err != nil {
			p.w.check.reportViolation("setup", "queue: %v", err)
		}

		for _, m := range got {
			running.Add(1)
			p.w.trace.addLine("%s got ticket %s", p.name, m.Text)
			p.host.Go(func() {
				defer running.Add(-1)
				text, err := json.Marshal(m.Text)
				if err == nil {
					in := invoke.Invocation{ID: m.ID,
						Data: map[string]json.RawMessage{"ticket": text}}
					err = p.invokeFunction(name,
						func(ctx context.Context) error { return function(ctx, in) })
				}

				if p.listening.Err() != nil && !p.hostLives.Load() {
					return // the host is gone, and the ticket stays hidden
				}

				switch {
				case err == nil:
					p.w.trace.addTicketLine("%s has answered ticket %s", p.name, m.Text)
					err = queue.Delete(context.Background(), m)
				case m.DequeueCount < 5:
					_, err = queue.Update(context.Background(), m, m.Text, retryDelay)
				default:
					_ = p.w.account.Queue("poison").Put(context.Background(), m.Text, 0)
					err = queue.Delete(context.Background(), m)
				}

				if err != nil {
					p.w.trace.addLine("%s: ticket: %v", p.name, err)
				}
			})
		}
	}
}

// planHost plans when the handlers of an instance die, and when the platform ends the instance
// while it is idle.
func (s *slot) planHost() {
	name := fmt.Sprint("slot ", s.number)
	for i := range s.w.hosting.deaths {
		s.planAt(name+" handler death", func() { s.handlerDies(name, i+1) })
	}

	for range s.w.hosting.idleEnds {
		s.planAt(name+" idle end", func() { s.endIdle(name) })
	}
}

// handlerDies kills the handler but not its host. The host then starts another handler. At every
// third death the host gives up, and the platform starts another host.
func (s *slot) handlerDies(name string, nth int) {
	w, p := s.w, s.currentProcess()
	down := w.dice.drawBetween(name+" handler down", 100*time.Millisecond, 300*time.Millisecond)
	if nth%deathsAllowed == 0 {
		down = w.dice.drawBetween(name+" host down", 10*time.Second, 30*time.Second)
	} else {
		p.hostLives.Store(true)
	}

	p.killProcess()
	time.Sleep(down)
	s.startProcess()
	w.check.addCounts(func(c *counts) { c.HandlerDeaths++ })
}

// endIdle kills the instance as soon as it has no invocation, even if it drains lanes. Another
// instance starts later. If the instance always has an invocation, endIdle does nothing.
func (s *slot) endIdle(name string) {
	w, p := s.w, s.currentProcess()
	for range 300 {
		if p.invocations.Load() == 0 {
			p.killProcess()
			w.check.addCounts(func(c *counts) { c.IdleEnds++ })
			time.Sleep(w.dice.drawBetween(name+" away", time.Second, time.Minute))
			s.startProcess()
			return
		}

		time.Sleep(w.dice.drawBetween(name+" looks", 50*time.Millisecond, 150*time.Millisecond))
	}
}

// startScaling starts and ends instances by the length of the queue, until the faults end.
func (w *world) startScaling() {
	if !w.hosting.scales {
		return
	}

	w.upstream.Go(func() {
		for !w.isCalm() {
			time.Sleep(w.dice.drawBetween("scale", 5*time.Second, 15*time.Second))
			n, err := w.account.Queue("tickets").Length(context.Background())
			if err != nil {
				w.check.reportViolation("setup", "queue: %v", err)
				return
			}

			w.scaleTo(max(1, int(n+batchSize-1)/batchSize))
		}
	})
}

// scaleTo starts each of the first instances, up to the number "wanted", if the instance does not
// run. It ends each later instance that has no invocation. It leaves an instance alone while a
// fault of the instance is under way.
func (w *world) scaleTo(wanted int) {
	for i, s := range w.slots {
		select {
		case s.turn <- struct{}{}:
		default:
			continue
		}

		switch p := s.currentProcess(); {
		case i < wanted && p.isDead():
			s.startProcess()
			w.check.addCounts(func(c *counts) { c.ScaledOut++ })
		case i >= wanted && !p.isDead() && p.invocations.Load() == 0:
			p.killProcess()
			w.check.addCounts(func(c *counts) { c.ScaledIn++ })
		}

		<-s.turn
	}
}
