package drain_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

// The decision about a replay depends on the last delivery of the key. In these cases a holder
// could overlook a delivery, or compare a wrong version.
func TestDrainer_ReplayKnows(t *testing.T) {
	t.Run("MessageThatDiedUnderAnotherHolder", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.answerByBody("1")
			one, other := w.start(), w.start()
			w.post("b", "before")
			one.Wake(0)
			w.waitUntilIdle()
			time.Sleep(time.Minute) // the holder releases the lane
			first := w.post("a", "1")
			other.Wake(0)
			w.waitUntilIdle()
			time.Sleep(time.Minute)
			second := w.post("a", "2")
			one.Wake(0)
			w.waitUntilIdle()
			w.expectReplayRefused(first, second.String())
		})
	})

	t.Run("LateRetryIsNotTheNewest", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			m := w.answerByBody("dead")
			p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
			m.setStatus("late", 500)
			late := w.post("a", "late", withSkip)
			dead, last := w.post("a", "dead"), w.post("a", "last")
			p.Wake(0)
			time.Sleep(time.Second)
			m.setStatus("late", 200)
			w.waitUntilIdle()
			if got := w.sentBodies(); !slices.Equal(got, []string{"late", "dead", "last", "late"}) {
				t.Errorf("sent %v, want [late dead last late]", got)
			}

			w.expectReplayRefused(dead, last.String())
			w.expectCounts(lane.Counts{Delivered: 2, Dead: 1}, late, dead, last)
		})
	})

	t.Run("CorrectedVersionWins", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.answerByBody("1")
			p := w.start()
			old := w.postVersion("a", "1")
			p.Wake(0)
			w.waitUntilIdle()
			newer := w.postVersion("a", "2")
			p.Wake(0)
			w.waitUntilIdle()
			w.replay(old, lane.ReplayOptions{Force: true,
				Edit: &lane.Edit{Body: []byte("3"), Version: "3"}})
			p.Wake(0)
			w.waitUntilIdle()
			w.expectCounts(lane.Counts{Delivered: 2}, old, newer)
		})
	})
}

// A replay is requested while the CMS works on a later message of the key. The holder refuses the
// replay, even if it reads the request before it has committed the delivery of the later message.
func TestDrainer_ReplayBesideACommit(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.answerByBody("1")
				p := w.start()
				first := w.post("a", "1")
				p.Wake(0)
				w.waitUntilIdle()
				w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
					if string(d.Message.Body) == "2" {
						if _, err := w.store.Requests().Replay(ctx, first, lane.ReplayOptions{}); err != nil {
							t.Error(err)
						}
					}
					return answerAfter(20*time.Millisecond, 200)(ctx, d)
				})

				for n := range 80 {
					if n == 3*i {
						w.post("a", "2")
					}
					w.post(fmt.Sprint(n), "other")
				}

				p.Wake(0)
				w.waitUntilIdle()
				if st := w.status(first); st.Stage != weir.Dead || st.ReplayRefused == "" {
					t.Errorf("got %+v, want Stage dead and a ReplayRefused", st)
				}
			})
		})
	}
}

// A key has three messages to send: a replayed message, a message of the log and a due message. The
// holder sends them in this order.
func TestDrainer_ReplayBeforeADueMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		p := w.start()
		first := w.post("a", "1")
		p.Wake(0)
		w.waitUntilIdle()
		m.setStatus("1", 200)
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		w.post("a", "due", withDueTime(time.Now().Add(3*time.Second)))
		for i := range 5 {
			w.post(fmt.Sprint(i), "other")
		}

		w.post("a", "2")
		p.Wake(0)
		time.Sleep(5 * time.Second)
		w.replay(first, lane.ReplayOptions{})
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"1", "2", "due"}) {
			t.Errorf("delivered %v, want [1 2 due]", got)
		}
	})
}
