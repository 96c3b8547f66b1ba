package drain_test

import (
	"context"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

// isAwayFor makes the CMS look away for the messages of some keys. It takes all other messages.
func (w *world) isAwayFor(reason weir.Result, keys ...string) {
	w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
		for _, key := range keys {
			if d.Message.Key == key {
				return reason
			}
		}
		return answerAfter(20*time.Millisecond, 200)(ctx, d)
	})
}

// noConnection and redirected are two results that look as if the CMS was away.
var (
	noConnection = weir.Result{Outcome: weir.OutcomeUnavailable, Reason: "no connection"}
	redirected   = weir.Result{Outcome: weir.OutcomeUnavailable, Status: 302, Reason: "302 Found"}
)

// For the message of one key the CMS seems to be away. Messages of other keys do not wait, however
// long the first one was alone in its lane.
func TestBreaker_OneKeyAwayHoldsUpNoOther(t *testing.T) {
	for name, reason := range map[string]weir.Result{"NoConnection": noConnection,
		"Redirected": redirected} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.isAwayFor(reason, "bad")
				p := w.start(withDefaultBackoff)
				bad := w.post("bad", "1")
				p.Wake(0)
				time.Sleep(6 * time.Hour)

				if st := w.status(bad); st.AttemptCount != 0 {
					t.Errorf("alone, %d attempts count, want none before delivery.patience",
						st.AttemptCount)
				}

				for range 10 {
					posted := time.Now()
					good := w.post("good", "2")
					p.Wake(0)
					for w.status(good).Stage != weir.Delivered && time.Since(posted) < time.Hour {
						time.Sleep(100 * time.Millisecond)
					}

					if took := time.Since(posted); took > 3*time.Second {
						t.Errorf(
							"a message of another key was delivered after %s, want it not to wait",
							took)
					}

					time.Sleep(10 * time.Minute)
				}

				if st := w.status(bad); st.Stage != weir.Dead {
					t.Errorf("got %s after %d attempts, want dead: the CMS takes other messages",
						st.Stage, st.AttemptCount)
				}
			})
		})
	}
}

// A message for which the CMS seems to be away is alone in its lane. It becomes dead after
// delivery.patience, although holders change in between.
func TestBreaker_OneKeyAwayBecomesFinal(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.isAwayFor(noConnection, "bad")
		patience := func(c *drain.Config) { c.Patience = 2 * time.Hour }
		p := w.start(patience)
		bad := w.post("bad", "1")
		p.Wake(0)
		time.Sleep(time.Hour)
		p.close(t)
		next := w.start(patience)
		next.Wake(0)
		time.Sleep(55 * time.Minute)

		if st := w.status(bad); st.Stage.Final() || st.AttemptCount != 0 {
			t.Fatalf("before the end of the patience got %s after %d attempts, want none counted",
				st.Stage, st.AttemptCount)
		}

		w.waitUntilEmpty(time.Hour)
		if st := w.status(bad); st.Stage != weir.Dead {
			t.Errorf("got %s, want dead", st.Stage)
		}
	})
}

// Messages of two keys find no connection, so the CMS is away. The lane pauses, and a new message
// waits for the end of the pause.
func TestBreaker_TwoKeysAwayPauseTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.isAwayFor(noConnection, "a", "b", "c")
		p := w.start(withDefaultBackoff)
		w.post("a", "1")
		w.post("b", "1")
		p.Wake(0)
		time.Sleep(time.Hour)
		before := len(w.cms.listRequests())
		w.post("c", "1")
		p.Wake(0)
		time.Sleep(2 * time.Second)
		if got := len(w.cms.listRequests()) - before; got > 1 {
			t.Errorf("got %d requests for a new message in the pause, want it to wait", got)
		}

		if pause := time.Until(w.control().Tail.PausedUntil); pause <= 0 {
			t.Errorf("the lane pauses for another %s, want a pause", pause)
		}

		if seq := w.control().Tail.RefusingSince; !seq.IsZero() {
			t.Errorf("the CMS refuses since %s, want it away", seq)
		}
	})
}
