package drain_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestNotAfter_NoAttemptBeginsLater(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(70*time.Millisecond, 200))
		for i := range 50 {
			w.post(fmt.Sprint("/", i), "x")
		}

		bound := time.Now().Add(time.Second)
		p := w.start(func(c *drain.Config) { c.NotAfter = bound })
		p.Wake(0)
		time.Sleep(5 * time.Second)

		for _, s := range w.cms.listRequests() {
			if s.at.After(bound) {
				t.Errorf("an attempt began %s after the bound, want none after it", s.at.Sub(bound))
			}
		}

		c := w.control()
		if n := len(w.cms.listRequests()); n < 14 || c.Tail.Counts.Delivered != int64(n) ||
			c.Tail.IsOpen ||
			p.ticketCounter.countAll() != 1 {
			t.Errorf("%d attempts, tail %+v, %d tickets: want it committed, the lane handed over, and a ticket",
				n, c.Tail, p.ticketCounter.countAll())
		}

		start := time.Now()
		next := w.start()
		next.Wake(0)
		w.waitUntilEmpty(10 * time.Second)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the next holder began after %s, want the lease released within 5s", took)
		}
	})
}

func TestNotAfter_AnAttemptNotBegunIsNotCounted(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		id := w.post("/a", "x")
		p := w.start(func(c *drain.Config) { c.NotAfter = time.Now().Add(-time.Second) })
		p.Wake(0)
		time.Sleep(time.Second)

		if st := w.status(id); st.Stage != weir.Queued || st.AttemptCount != 0 ||
			len(w.cms.listRequests()) != 0 {
			t.Errorf("%+v, %d requests, want Stage queued, AttemptCount 0 and 0 requests", st,
				len(w.cms.listRequests()))
		}
	})
}

func TestReport(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Second, 200))
		p := w.start()
		if got := p.Report(0); got != (drain.Report{}) {
			t.Errorf("before any look: got the state %+v, want none", got)
		}

		w.post("/a", "x")
		p.Wake(0)
		time.Sleep(500 * time.Millisecond)
		if got := p.Report(0); got != (drain.Report{}) {
			t.Errorf("while draining: got the state %+v, want none", got)
		}

		w.waitUntilEmpty(5 * time.Second)
		time.Sleep(5 * time.Second)

		if got := p.Report(0); got.State != drain.Idle || got.Err != nil {
			t.Errorf("after the drain: got the state %+v, want State %v and no Err", got,
				drain.Idle)
		}

		w.post("/a", "y")
		p.Wake(0)
		time.Sleep(500 * time.Millisecond)
		if got := p.Report(0); got != (drain.Report{}) {
			t.Errorf("while draining again: got the state %+v, want none", got)
		}

		w.waitUntilEmpty(5 * time.Second)
		time.Sleep(5 * time.Second)
		p.faults.Set(func(storagetest.Call) storagetest.Fault {
			return storagetest.Fault{
				Kind: storagetest.FailBefore}
		})

		p.Wake(0)
		time.Sleep(500 * time.Millisecond)

		if got := p.Report(0); got.Err == nil || !storage.Is(got.Err, storage.Unavailable) {
			t.Errorf("while storage is away: got the state %+v, %v, want %v", got,
				errors.Unwrap(got.Err), storage.Unavailable)
		}
	})
}

// A failed message waits three hours for its retry (Backoff.Steps). The time of the retry stays the
// same when the lane gets another holder, and when a message of another key arrives.
func TestDrainer_LongStepAfterAChangeOfHolder(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(_ context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "a" && d.Attempt == 1 {
				return weir.Result{Outcome: weir.OutcomeRetry, Status: 500}
			}
			return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200}
		})

		steps := func(c *drain.Config) { c.Backoff.Steps = []time.Duration{3 * time.Hour} }
		former := w.start(steps)
		w.post("a", "1")
		former.Wake(0)
		time.Sleep(time.Minute)
		former.close(t)
		next := w.start(steps)
		w.post("b", "1")
		next.Wake(0)
		time.Sleep(2*time.Hour + 50*time.Minute)
		if got := w.control().WaitingCount(); got != 1 {
			t.Errorf("ten minutes before the retry: got %d waiting messages, want 1", got)
		}

		time.Sleep(15 * time.Minute)
		next.Wake(0)
		w.waitUntilEmpty(time.Minute)
	})
}

// A holder whose clock is two hours ahead writes the end of a pause or of the settle time into
// tail. The next holder, whose clock is right, does not wait until that time.
func TestDrainer_AfterAClockFarAhead(t *testing.T) {
	for name, c := range map[string]struct {
		cms    func(context.Context, weir.Delivery) weir.Result
		within time.Duration
		resume bool
	}{
		"CutOff":        {answerAfter(time.Minute, 200), 10 * time.Second, false},
		"CutOffResumed": {answerAfter(time.Minute, 200), 10 * time.Second, true},
		"Unavailable":   {answerAfter(10*time.Millisecond, 503), 5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(c.cms)
				w.post("a", "1")
				ahead := w.start(func(c *drain.Config) {
					c.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
					w.limitRate(1, time.Second)(c)
				})

				ahead.Wake(0)
				time.Sleep(2 * time.Second)
				ahead.close(t)
				w.cms.setAnswer(answerAfter(10*time.Millisecond, 200))
				next, began := w.start(w.limitRate(1, time.Second)), time.Now()

				if c.resume {
					if err := w.store.Pauses().Resume(t.Context(), 0, ""); err != nil {
						t.Fatal(err)
					}
				}

				for w.control().WaitingCount() > 0 && time.Since(began) < time.Hour {
					next.Wake(0)
					time.Sleep(time.Second)
				}

				if took := time.Since(began); took > c.within {
					t.Errorf("delivered %s later, want %s at most", took, c.within)
				}
			})
		})
	}
}
