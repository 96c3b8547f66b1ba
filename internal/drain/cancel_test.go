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

func TestDrainer_CancelAndMove_ScheduledAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		id := w.post("a", "1", due(time.Now().Add(time.Minute)))
		w.post("a", "2", due(time.Now().Add(time.Minute)))
		p.Wake(0)
		synctest.Wait()
		st, err := w.store.Cancel(t.Context(), id)
		if err != nil || st.Stage != weir.Cancelled || w.status(id).Stage != weir.Cancelled {
			t.Fatalf("%+v, %v", st, err)
		}
		if _, err := w.store.Cancel(t.Context(), id); weir.KindOf(err) != weir.Conflict {
			t.Errorf("cancelled twice: %v", err)
		}
		p.Wake(0)
		c := w.settled(2 * time.Minute)
		if got := w.delivered("a"); !slices.Equal(got, []string{"2"}) || c.Tail.Counts.Cancelled != 1 ||
			c.HasRequests() {
			t.Errorf("delivered %v, %+v", got, c)
		}
	})
}

func TestDrainer_CancelAndMove_AgainstItsRelease(t *testing.T) {
	for i := range 40 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				p := w.start(slowStorage)
				at := time.Now().Add(10 * time.Second)
				ids := []weir.ID{w.post("a", "0", due(at)), w.post("b", "1", due(at)), w.post("c", "2", due(at))}
				p.Wake(0)
				time.Sleep(9900*time.Millisecond + time.Duration(i)*5*time.Millisecond)
				st, err := w.store.Cancel(t.Context(), ids[1])
				p.Wake(0)
				c := w.settled(time.Minute)
				sent := len(w.delivered("b"))
				switch final := w.status(ids[1]).Stage; {
				case err == nil && st.Stage == weir.Cancelled && sent > 0:
					t.Errorf("%d: sent after it was cancelled", i)
				case final == weir.Cancelled && sent > 0, final == weir.Delivered && sent != 1:
					t.Errorf("%d: %s, and sent %d times", i, final, sent)
				}
				if n := c.Tail.Counts; n.Delivered+n.Cancelled != 3 || n.Delivered != int64(2+sent) {
					t.Errorf("%d: %+v", i, n)
				}
			})
		})
	}
}

func TestDrainer_CancelAndMove_Moved(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		began := time.Now()
		sooner := w.post("a", "sooner", due(began.Add(time.Hour)))
		later := w.post("b", "later", due(began.Add(10*time.Second)))
		p.Wake(0)
		time.Sleep(9 * time.Second) // a holder waits for the second
		_, err := w.store.Reschedule(t.Context(), later, began.Add(2*time.Minute), "nonsense")
		if weir.KindOf(err) != weir.Stale {
			t.Errorf("moved by a stale version: %v", err)
		}
		st, err := w.store.Reschedule(t.Context(), later, began.Add(2*time.Minute), weir.Tag(w.status(later).Version))
		if err != nil || !st.Message.DueAt.Equal(began.Add(2*time.Minute)) {
			t.Fatalf("%+v, %v", st, err)
		}
		if _, err := w.store.Reschedule(t.Context(), sooner, began.Add(time.Minute), ""); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		w.settled(time.Hour)
		dues := map[string]time.Time{"sooner": began.Add(time.Minute), "later": began.Add(2 * time.Minute)}
		for body, late := range w.late(dues) {
			if late > time.Millisecond {
				t.Errorf("%s was %s late", body, late)
			}
		}
		if _, err := w.store.Reschedule(t.Context(), sooner, began.Add(2*time.Hour), ""); weir.KindOf(err) != weir.Conflict {
			t.Errorf("moved after delivery: %v", err)
		}
	})
}

func TestDrainer_CancelAndMove_TheOlderVersionBehindWhichANewerOneWaits(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(context.Context, weir.Delivery) weir.Result { return answer(500) })
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
		old := w.edit("a", "1")
		p.Wake(0)
		time.Sleep(5 * time.Second)
		w.edit("a", "2")
		p.Wake(0)
		time.Sleep(7 * time.Second) // the newer one was tried in place of the old, and waits
		if _, err := w.store.Cancel(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		time.Sleep(10 * time.Second)
		log := w.cms.requests()
		if len(log) != 3 || log[2].at.Sub(log[1].at) < 10*time.Second || w.status(old).Stage != weir.Cancelled {
			t.Errorf("%+v, the old one is %s", log, w.status(old).Stage)
		}
	})
}

func TestDrainer_CancelAndMove_MovedIntoThePastBehindWhatIsTried(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if string(d.Message.Body) == "first" && d.Attempt == 1 {
				return answer(500)
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		p := w.start(func(c *drain.Config) { c.Backoff.Steps = []time.Duration{10 * time.Second} })
		w.post("a", "first", due(time.Now().Add(time.Second)))
		moved := w.post("a", "moved", due(time.Now().Add(time.Hour)))
		p.Wake(0)
		time.Sleep(2 * time.Second) // the first was tried
		if _, err := w.store.Reschedule(t.Context(), moved, time.Now().Add(-time.Minute), ""); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		w.settled(time.Minute)
		var sent []string
		for _, r := range w.cms.requests() {
			sent = append(sent, r.body)
		}
		if !slices.Equal(sent, []string{"first", "first", "moved"}) {
			t.Errorf("sent %v", sent)
		}
	})
}

func TestDrainer_CancelAndMove_CancelledWithItsOfferKept(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(context.Context, weir.Delivery) weir.Result {
			r := answer(503)
			r.RetryAfter = time.Minute
			return r
		})
		p := w.start()
		a := w.receiver(p)
		w.file(a, "a", "first")
		time.Sleep(10 * time.Second) // the lane pauses, and is let go
		w.cms.set(takes(time.Millisecond, 200))
		for i := range 60 {
			w.file(a, fmt.Sprint("k", i), "more")
		}
		w.append = a
		id := w.post("b", "cancelled")
		if _, err := w.store.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		c := w.settled(2 * time.Minute)
		if got := w.delivered("b"); len(got) > 0 || c.Tail.Counts.Cancelled != 1 || c.Tail.Counts.Delivered != 61 {
			t.Errorf("delivered %v, %+v", got, c.Tail)
		}
	})
}

func TestDrainer_CancelAndMove_QueuedRetryingAndHeld(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "a" && string(d.Message.Body) == "0" {
				return answer(500)
			}
			return takes(200*time.Millisecond, 200)(ctx, d)
		})
		p := w.start(func(c *drain.Config) { c.Backoff.Min, c.Rand = 30*time.Second, func() float64 { return 1 } })
		w.append.OnFiled, w.append.OnWake = p.OfferAppended, p.WakeOffered
		retrying, held := w.post("a", "0"), w.post("a", "1")
		w.post("a", "2")
		time.Sleep(time.Second)
		var queued weir.ID
		for i := range 20 {
			queued = w.post("b", fmt.Sprint(i))
		}
		for _, id := range []weir.ID{retrying, held, queued} {
			if st, err := w.store.Cancel(t.Context(), id); err != nil || st.Stage.Final() {
				t.Errorf("%+v, %v", st, err)
			}
			if _, err := w.store.Cancel(t.Context(), id); err != nil { // asked again
				t.Error(err)
			}
		}
		began := time.Now()
		c := w.settled(time.Minute)
		for _, id := range []weir.ID{retrying, held, queued} {
			if st := w.status(id); st.Stage != weir.Cancelled || st.FinishedAt.IsZero() {
				t.Errorf("%+v", st)
			}
		}
		if got := w.delivered("a"); !slices.Equal(got, []string{"2"}) || time.Since(began) > 20*time.Second ||
			c.Tail.Counts.Cancelled != 3 {
			t.Errorf("delivered %v after %s, %+v", got, time.Since(began), c.Tail)
		}
	})
}

func TestDrainer_CancelAndMove_WhileTheLanePauses(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(func(context.Context, weir.Delivery) weir.Result { r := answer(503); r.RetryAfter = time.Hour; return r })
		p := w.start()
		id := w.post("a", "1")
		p.Wake(0)
		time.Sleep(time.Minute)
		if _, err := w.store.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p.Wake(0)
		w.settled(5 * time.Second)
		if n := len(w.cms.requests()); n != 1 || w.status(id).Stage != weir.Cancelled {
			t.Errorf("%d requests, %s", n, w.status(id).Stage)
		}
	})
}
