package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// In this file operators pause lanes and keys, and the checker checks the pauses.

// storedPause is a pause in storage.
type storedPause struct {
	at    time.Time // when the pause began
	until time.Time // when the pause ends; zero = no end
}

func (s *settings) drawPauses(d *dice) {
	if d.drawChance("stopping", 0.4) {
		s.pauses = 1 + d.drawBelow("stopped", 4)
	}
}

// startPauses lets operators pause one lane, all lanes or a key, and resume them later. Some
// operators only resume a lane.
func (w *world) startPauses(ctx context.Context) {
	for i := range w.settings.pauses {
		name := fmt.Sprint("pause ", i)
		at, d := w.dice.drawBetween(name+" at", 0, w.trouble),
			w.dice.drawBetween(name+" for", 100*time.Millisecond, 40*time.Second)
		lanes, key := []int{w.dice.drawBelow(name+" lane", w.lanes)}, ""

		// If resumes is true, the operator pauses nothing, and only resumes the lane. Weir itself
		// pauses a lane if the CMS fails, and resuming the lane ends such a pause.
		resumes := false
		switch w.dice.drawBelow(name+" what", 6) {
		case 0:
			lanes = lanes[:0]
			for n := range w.lanes {
				lanes = append(lanes, n)
			}

		case 1, 2:
			key = fmt.Sprint("k", w.dice.drawBelow(name+" key", w.keys))
			lanes[0] = lane.Of(key, w.lanes)
		case 3:
			resumes = true
		}

		timed := w.dice.drawChance(name+" timed", 0.4)
		w.upstream.Go(func() {
			time.Sleep(at)
			for _, n := range lanes {
				if resumes {
					break
				}

				p := weir.Pause{Lane: n, Key: key, Reason: name}
				if timed {
					p.Until = time.Now().Add(w.dice.drawBetween(name+" until", 0, 2*d))
				}

				w.askUntilDone(ctx, name, n, func(ctx context.Context,
					s *lane.Store) error {
					return s.Pauses().Pause(ctx, p)
				})
			}

			time.Sleep(d)

			for _, n := range lanes {
				w.askUntilDone(ctx, name+" resume", n,
					func(ctx context.Context,
						s *lane.Store) error {
						return s.Pauses().Resume(ctx, n, key)
					})
			}
		})
	}
}

// askUntilDone asks drawn instances, one after the other, until one has carried the request out.
func (w *world) askUntilDone(ctx context.Context, name string, number int,
	do func(context.Context, *lane.Store) error) {
	for {
		p := w.slots[w.dice.drawBelow(name+" to", len(w.slots))].currentProcess()
		_, err := askProcess(ctx, p, name, func(ctx context.Context) (struct{}, error) {
			return struct{}{},
				do(ctx, p.store)
		})

		w.trace.addLine("%s: %s (lane %d): %v", p.name, name, number, err)

		if err == nil {
			p.lookAtLane(number)
			return
		}

		time.Sleep(w.dice.drawBetween(name+" again", 200*time.Millisecond, 3*time.Second))
	}
}

// notePauses records the changes of pauses in a transaction on head, and counts the requests to
// resume.
func (c *checker) notePauses(l *laneState, ops []storage.Op) {
	for _, op := range ops[1:] {
		switch {
		case op.Key == "w_resume":
			c.counts.Resumed++
		case !strings.HasPrefix(op.Key, "!pause"):
		case op.Kind == storage.Delete:
			delete(l.pauses, op.Key)
			c.disturbed = time.Now()
		default:
			if l.pauses == nil {
				l.pauses = map[string]storedPause{}
			}

			until, _ := op.Values["Until"].(time.Time)
			s := storedPause{at: time.Now(), until: until}
			if before, ok := l.pauses[op.Key]; ok &&
				(before.until.IsZero() || before.until.After(time.Now().Add(clocks))) {
				s.at = before.at
			}

			l.pauses[op.Key] = s
			c.counts.Paused++
		}
	}
}

const (
	// obeyed is the time for which messages may still be sent after a pause was written.
	obeyed = 1500*time.Millisecond + 10*time.Millisecond
	// clocks is the largest difference between the clocks of two processes, and the largest jump of
	// a clock.
	clocks = 2 * time.Second
)

// checkPaused checks that no message of a paused lane or key is sent. It leaves out a process that
// stalled after the pause began. It also leaves out a process whose clock jumped after the pause
// began, or shortly before.
func (c *checker) checkPaused(l *laneState, f *filed, r *request) {
	for _, row := range []string{"!pause", "!pause_" + c.store.KeyHash(f.key)} {
		s, ok := l.pauses[row]
		if !ok || (!s.until.IsZero() && !s.until.After(r.p.nowAtMost())) {
			continue
		}

		if since := r.sent.Sub(s.at); since > obeyed && !r.p.stoodSince(s.at) &&
			// a sender that read the pauses before the jump can be late
			!r.p.slot.jumpedSince(s.at.Add(-obeyed)) {
			c.addViolation("paused", "%s sent seq %d of lane %d, key %s, %s after %s was written",
				r.p.name, f.id.Seq, f.id.Lane, f.key, since, row)
		}
	}
}

// pausedUntil returns the end of a key's pause in storage; zero = the key is not paused.
func (l *laneState) pausedUntil(keyHash string) time.Time {
	s, ok := l.pauses["!pause_"+keyHash]
	if ok && s.until.IsZero() {
		return weir.Forever
	}
	return s.until
}

// stoodSince reports whether the process has stalled at any time after t.
func (p *process) stoodSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resume != nil || p.resumed.After(t)
}

// jumpedSince reports whether the slot's clock has jumped after t.
func (s *slot) jumpedSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.jumped.After(t)
}
