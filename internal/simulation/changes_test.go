package simulation_test

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// In this file upstreams give messages due times, cancel messages, and move messages to other due
// times.

// drawSchedules draws the interval of the recurring message, and the due times that many messages
// share. It also draws how many messages have a due time, are cancelled, or are moved.
func (s *settings) drawSchedules(d *dice) {
	if d.drawChance("recurring", 0.25) {
		s.every = time.Duration(3+d.drawBelow("every", 12)) * time.Second
	}

	if d.drawChance("no due times", 0.35) {
		return
	}

	s.scheduled = []float64{0.15, 0.4, 0.4, 0.8}[d.drawBelow("scheduled", 4)]
	s.cancels, s.moves = []float64{0, 0.1, 0.4}[d.drawBelow("cancels", 3)],
		[]float64{0, 0.1, 0.4}[d.drawBelow("moves", 3)]
	s.horizon = []time.Duration{20 * time.Second, time.Minute, 5 * time.Minute}[d.drawBelow("horizon", 3)]
	for i := range s.moments {
		s.moments[i] = d.drawBetween("moment", 0, s.trouble+20*time.Second).Truncate(
			time.Millisecond)
	}
}

// dueFor draws a message's due time; zero = none. A due time that many messages share differs by a
// microsecond from lane to lane. Otherwise several lanes of a process would act in the same
// nanosecond, and the seed would not decide which lane acts first.
func (w *world) dueFor(s *submission, start time.Duration) time.Time {
	if !w.dice.drawChance("due", w.scheduled) {
		return time.Time{}
	}

	draw := func(low, high time.Duration) time.Time {
		return w.started.Add(start + w.dice.drawBetween("due in", low, high))
	}
	if w.sizes.kind == together {
		return w.started.Add(w.moments[0] + time.Duration(lane.Of(s.key, w.lanes))*time.Microsecond)
	}

	switch w.dice.drawBelow("due kind", 8) {
	case 0:
		return draw(-10*time.Second, 0)
	case 1:
		return draw(10*time.Millisecond, 150*time.Millisecond)
	case 2:
		return draw(150*time.Millisecond, 3*time.Second)
	case 3, 4, 5:
		at := w.started.Add(w.moments[w.dice.drawBelow("which moment", len(w.moments))] +
			time.Duration(lane.Of(s.key, w.lanes))*time.Microsecond)
		if w.dice.drawChance("next to it", 0.5) {
			at = at.Add(w.dice.drawBetween("next to it", 0, 40*time.Millisecond))
		}
		return at

	case 6:
		return draw(w.horizon/2, w.horizon)
	}

	return draw(time.Second, 20*time.Second)
}

// changeMessage draws whether an upstream cancels an accepted message. If the message has a due
// time, changeMessage also draws up to three moves.
func (w *world) changeMessage(ctx context.Context, s *submission) {
	id := w.check.idOf(s)
	if id.IsZero() {
		return
	}

	name := fmt.Sprint(s.number)
	if w.dice.drawChance("cancels", w.cancels) {
		w.upstream.Go(func() {
			time.Sleep(w.changeIn("cancel "+name, s))
			w.cancelMessage(ctx, name, id)
		})
	}

	for i := range 3 {
		if s.message.DueAt.IsZero() || !w.dice.drawChance("moves", w.moves) {
			return
		}

		name := fmt.Sprint(name, ".", i)
		w.upstream.Go(func() {
			time.Sleep(w.changeIn("move "+name, s))
			w.moveMessage(ctx, name, s, id)
		})
	}
}

// changeIn draws how long an upstream waits before it requests a change: up to half a second, up to
// 20 s, or until about the message's due time by the clock of a drawn instance.
func (w *world) changeIn(name string, s *submission) time.Duration {
	switch kind := w.dice.drawBelow(name+" when", 5); {
	case kind == 0:
		return w.dice.drawBetween(name, 0, 500*time.Millisecond)
	case kind == 1 || s.message.DueAt.IsZero():
		return w.dice.drawBetween(name, 0, 20*time.Second)
	}

	clock := w.slots[w.dice.drawBelow(name+" clock", len(w.slots))]
	moment := s.message.DueAt.Sub(clock.readClock())
	return max(0, moment+w.dice.drawBetween(name, -80*time.Millisecond, 40*time.Millisecond))
}

// cancelMessage asks drawn instances to cancel a message, up to 20 times, until an instance accepts
// or refuses.
func (w *world) cancelMessage(ctx context.Context, name string, id weir.ID) {
	for range 20 {
		p := w.slots[w.dice.drawBelow("cancel to "+name, len(w.slots))].currentProcess()
		asked := time.Now()
		st, err := askProcess(ctx, p, "cancel "+name,
			func(ctx context.Context) (weir.Status,
				error) {
				return p.store.Requests().Cancel(ctx, id)
			})

		w.trace.addLine("%s: cancel %s (lane %d seq %d): %s, %v", p.name, name, id.Lane, id.Seq,
			st.Stage, err)
		if err == nil {
			p.lookAtLane(id.Lane)
		}

		if w.check.cancelAnswered(id, asked, st, err) {
			return
		}

		time.Sleep(w.dice.drawBetween("cancel again "+name, 200*time.Millisecond, 3*time.Second))
	}
}

// moveMessage asks drawn instances for another due time, up to 20 times, until an instance accepts
// or refuses. The new due time is one of these:
//
//   - a time in the past
//   - a time in the next 200 ms
//   - a time in the next 30 s
//   - the due time with which the message was posted
//   - a due time that many messages share
func (w *world) moveMessage(ctx context.Context, name string, s *submission, id weir.ID) {
	due := time.Now().Add(w.dice.drawBetween("move in "+name, -10*time.Second, 0))
	switch w.dice.drawBelow("move kind "+name, 6) {
	case 0, 1:
		due = time.Now().Add(w.dice.drawBetween("move in "+name, 0, 200*time.Millisecond))
	case 2:
		due = time.Now().Add(w.dice.drawBetween("move in "+name, time.Second, 30*time.Second))
	case 3:
		due = s.message.DueAt
	case 4:
		due = w.started.Add(w.moments[0] + time.Duration(id.Lane)*time.Microsecond)
	}

	for range 20 {
		p := w.slots[w.dice.drawBelow("move to "+name, len(w.slots))].currentProcess()
		st, err := askProcess(ctx, p, name, func(ctx context.Context) (weir.Status, error) {
			version := ""
			if w.dice.drawChance("move version "+name, 0.5) {
				st, err := p.store.Messages().Status(ctx, id)
				if err != nil {
					return st, err
				}
				version = weir.Tag(st.Version)
			}

			return p.store.Requests().Reschedule(ctx, id, due, version)
		})

		w.trace.addLine("%s: move %s (lane %d seq %d) to %s: %s, %v", p.name, name, id.Lane, id.Seq,
			due.Sub(w.started), st.Stage, err)
		if err == nil {
			p.lookAtLane(id.Lane)
		}

		if w.check.moveAnswered(id, due, err) {
			return
		}

		time.Sleep(w.dice.drawBetween("move again "+name, 200*time.Millisecond, 3*time.Second))
	}
}

// lookAtLane lets the process look at a lane, and enqueues a ticket for the lane.
func (p *process) lookAtLane(lane int) {
	p.drainer.Wake(lane)
	p.bell.EnqueueAsync(lane)
}

// patience is the time for which an upstream waits for an answer.
const patience = 12345 * time.Millisecond

// askProcess simulates an HTTP request to a process. It waits no longer than patience for the
// answer.
func askProcess[T any](ctx context.Context, p *process, name string,
	handle func(context.Context) (T, error)) (T, error) {
	return askWithin(ctx, p, name, patience, handle)
}

// askWithin is askProcess with a given time limit.
func askWithin[T any](ctx context.Context, p *process, name string, patience time.Duration,
	handle func(context.Context) (T, error)) (T, error) {
	type answer struct {
		t   T
		err error
	}

	var none T
	if p.isDead() {
		return none, errLost // no process listens
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got := make(chan answer, 1)
	p.invocations.Add(1)
	p.w.loose.Go(func() {
		defer p.invocations.Add(-1)
		if !p.awaitReady(ctx, name) {
			got <- answer{err: errStarting}
			return
		}

		t, err := handle(ctx)
		if p.awaitRunning("answer " + name) {
			got <- answer{t, err}
		}
	})

	select {
	case a := <-got:
		return a.t, a.err
	case <-time.After(patience + time.Millisecond): // the process stalls
		return none, context.DeadlineExceeded
	case <-p.killed:
		return none, errLost
	}
}
