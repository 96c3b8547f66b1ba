package drain_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

func TestDrainer_CancelAndReschedule_AScheduledMessageIsCancelledAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		id := w.post("a", "1", withDueTime(time.Now().Add(time.Minute)))
		w.post("a", "2", withDueTime(time.Now().Add(time.Minute)))
		p.Wake(0)
		synctest.Wait()
		st, err := w.store.Requests().Cancel(t.Context(), id)
		if err != nil || st.Stage != weir.Cancelled || w.status(id).Stage != weir.Cancelled {
			t.Fatalf("got %+v, %v, and stored %s, want cancelled in both", st, err,
				w.status(id).Stage)
		}

		if st, err := w.store.Requests().Cancel(t.Context(), id); err != nil ||
			st.Stage != weir.Cancelled {
			t.Errorf("cancelled twice: got %s, %v, want it cancelled and no error", st.Stage, err)
		}

		p.Wake(0)
		c := w.waitUntilEmpty(2 * time.Minute)
		if got := w.listDelivered("a"); !slices.Equal(got, []string{"2"}) ||
			c.Tail.Counts.Cancelled != 1 ||
			c.HasRequests() {
			t.Errorf("delivered %v, %+v, want [2], Cancelled 1 and no requests", got, c)
		}
	})
}

func TestDrainer_CancelAndReschedule_CancelledWhileItBecomesDue(t *testing.T) {
	for i := range 40 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start(slowStorage)
				at := time.Now().Add(10 * time.Second)
				ids := []weir.ID{w.post("a", "0", withDueTime(at)),
					w.post("b", "1", withDueTime(at)), w.post("c", "2", withDueTime(at))}
				p.Wake(0)
				time.Sleep(9900*time.Millisecond + time.Duration(i)*5*time.Millisecond)
				st, err := w.store.Requests().Cancel(t.Context(), ids[1])
				p.Wake(0)
				c := w.waitUntilEmpty(time.Minute)
				sent := len(w.listDelivered("b"))
				switch final := w.status(ids[1]).Stage; {
				case err == nil && st.Stage == weir.Cancelled && sent > 0:
					t.Errorf("%d: sent %d times after it was cancelled, want never", i, sent)
				case final == weir.Cancelled && sent > 0, final == weir.Delivered && sent != 1:
					t.Errorf("%d: %s, and sent %d times, want it delivered if sent once", i,
						final, sent)
				}

				if n := c.Tail.Counts; n.Delivered+n.Cancelled != 3 ||
					n.Delivered != int64(2+sent) {
					t.Errorf("run %d: got %+v, want 3 in all, %d of them delivered", i, n, 2+sent)
				}
			})
		})
	}
}

func TestDrainer_CancelAndReschedule_Rescheduled(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		began := time.Now()
		sooner := w.post("a", "sooner", withDueTime(began.Add(time.Hour)))
		later := w.post("b", "later", withDueTime(began.Add(10*time.Second)))
		p.Wake(0)
		time.Sleep(9 * time.Second) // the holder waits for the message that is due first
		_, err := w.store.Requests().Reschedule(t.Context(), later, began.Add(2*time.Minute),
			"nonsense")
		if weir.KindOf(err) != weir.Stale {
			t.Errorf("rescheduled by a stale version: %v, want an error of kind Stale", err)
		}

		st, err := w.store.Requests().Reschedule(t.Context(), later, began.Add(2*time.Minute),
			weir.Tag(w.status(later).Version))
		if err != nil || !st.Message.DueAt.Equal(began.Add(2*time.Minute)) {
			t.Fatalf("got %+v, %v, want DueAt %v and no error", st, err, began.Add(2*time.Minute))
		}

		if _, err := w.store.Requests().Reschedule(t.Context(), sooner, began.Add(time.Minute), ""); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		w.waitUntilEmpty(time.Hour)
		dues := map[string]time.Time{"sooner": began.Add(time.Minute),
			"later": began.Add(2 * time.Minute)}
		for body, late := range w.measureDelays(dues) {
			if late > time.Millisecond {
				t.Errorf("%s was %s late, want at most 1ms", body, late)
			}
		}

		if _, err := w.store.Requests().Reschedule(t.Context(), sooner, began.Add(2*time.Hour),
			""); weir.KindOf(err) != weir.Conflict {
			t.Errorf("rescheduled after delivery: %v, want an error of kind Conflict", err)
		}
	})
}

func TestDrainer_CancelAndReschedule_AnOlderVersionInFrontOfANewerOne(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(context.Context, weir.Delivery) weir.Result { return newAnswer(500) })
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
		old := w.postVersion("a", "1")
		p.Wake(0)
		time.Sleep(5 * time.Second)
		w.postVersion("a", "2")
		p.Wake(0)

		// the old version waits for its retry, and the newer version was sent instead
		time.Sleep(7 * time.Second)
		if _, err := w.store.Requests().Cancel(t.Context(), old); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		time.Sleep(10 * time.Second)
		log := w.cms.listRequests()
		if len(log) != 3 || log[2].at.Sub(log[1].at) < 10*time.Second ||
			w.status(old).Stage != weir.Cancelled {
			t.Errorf("%+v, the old one is %s, want 3 requests, the last 10 s after the second, and cancelled", log,
				w.status(old).Stage)
		}
	})
}

func TestDrainer_CancelAndReschedule_IntoThePastGoesBehindARetry(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "first" && d.Attempt == 1 {
				return newAnswer(500)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
		w.post("a", "first", withDueTime(time.Now().Add(time.Second)))
		moved := w.post("a", "moved", withDueTime(time.Now().Add(time.Hour)))
		p.Wake(0)
		time.Sleep(2 * time.Second) // "first" has failed, and waits for its retry
		if _, err := w.store.Requests().Reschedule(t.Context(), moved, time.Now().Add(-time.Minute), ""); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		var sent []string
		for _, r := range w.cms.listRequests() {
			sent = append(sent, r.body)
		}

		if !slices.Equal(sent, []string{"first", "first", "moved"}) {
			t.Errorf("sent %v, want [first first moved]", sent)
		}
	})
}

func TestDrainer_CancelAndReschedule_CancelledWithItsOfferKept(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(context.Context, weir.Delivery) weir.Result {
			r := newAnswer(503)
			r.RetryAfter = time.Minute
			return r
		})

		p := w.start()
		a := w.newOfferingAppender(p)
		w.appendBy(a, "a", "first")
		time.Sleep(10 * time.Second) // the lane pauses, so the holder hands the lane over
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		for i := range 60 {
			w.appendBy(a, fmt.Sprint("k", i), "more")
		}

		w.lanes.Appender = a
		id := w.post("b", "cancelled")
		if _, err := w.store.Requests().Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		c := w.waitUntilEmpty(2 * time.Minute)
		if got := w.listDelivered("b"); len(got) > 0 || c.Tail.Counts.Cancelled != 1 ||
			c.Tail.Counts.Delivered != 61 {
			t.Errorf("delivered %v, %+v, want none, Cancelled 1 and Delivered 61", got, c.Tail)
		}
	})
}

func TestDrainer_CancelAndReschedule_QueuedRetryingAndHeld(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "a" && string(d.Message.Body) == "0" {
				return newAnswer(500)
			}
			return answerAfter(200*time.Millisecond, 200)(ctx, d)
		})

		p := w.start(func(c *drain.Config) {
			c.Backoff.Min, c.Rand = 30*time.Second,
				func() float64 { return 1 }
		})

		w.lanes.Appender.OnFiled, w.lanes.Appender.OnWake = p.OfferAppended, p.WakeOffered
		retrying, held := w.post("a", "0"), w.post("a", "1")
		w.post("a", "2")
		time.Sleep(time.Second)
		var queued weir.ID
		for i := range 20 {
			queued = w.post("b", fmt.Sprint(i))
		}

		for _, id := range []weir.ID{retrying, held, queued} {
			if st, err := w.store.Requests().Cancel(t.Context(), id); err != nil ||
				st.Stage.Final() {
				t.Errorf("got %+v, %v, want a stage that is not final", st, err)
			}

			// a repeated request is no error
			if _, err := w.store.Requests().Cancel(t.Context(), id); err != nil {
				t.Error(err)
			}
		}

		began := time.Now()
		c := w.waitUntilEmpty(time.Minute)

		for _, id := range []weir.ID{retrying, held, queued} {
			if st := w.status(id); st.Stage != weir.Cancelled || st.FinishedAt.IsZero() {
				t.Errorf("got %+v, want Stage cancelled and a FinishedAt", st)
			}
		}

		if got := w.listDelivered("a"); !slices.Equal(got, []string{"2"}) ||
			time.Since(began) > 20*time.Second ||
			c.Tail.Counts.Cancelled != 3 {
			t.Errorf("delivered %v after %s, %+v, want [2], at most 20s and Cancelled 3", got,
				time.Since(began), c.Tail)
		}
	})
}

func TestDrainer_CancelAndReschedule_WhileTheLanePauses(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(context.Context,
			weir.Delivery) weir.Result {
			r := newAnswer(503)
			r.RetryAfter = time.Hour
			return r
		})

		p := w.start()
		id := w.post("a", "1")
		p.Wake(0)
		time.Sleep(time.Minute)
		if _, err := w.store.Requests().Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}

		p.Wake(0)
		w.waitUntilEmpty(5 * time.Second)
		if n := len(w.cms.listRequests()); n != 1 || w.status(id).Stage != weir.Cancelled {
			t.Errorf("%d requests, %s, want 1 and Stage cancelled", n, w.status(id).Stage)
		}
	})
}
