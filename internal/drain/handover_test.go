package drain_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/residence"
)

func withHost(c *drain.Config) { c.Permit = residence.NewPermit(c.Now) }

// postBurst appends messages, each with a key of its own.
func (w *world) postBurst(count int) {
	for i := range count {
		w.post(fmt.Sprint("k", i), "x")
	}
}

// checkWrittenOnce checks that the CMS got "count" requests, one at a time. It also checks that
// each request began at most "limit" after the end of the previous request.
func (w *world) checkWrittenOnce(count int, limit time.Duration) {
	w.t.Helper()
	log := w.cms.listRequests()
	if len(log) != count {
		w.t.Errorf("%d requests, want %d", len(log), count)
	}

	for i := 1; i < len(log); i++ {
		if idle := log[i].at.Sub(log[i-1].end); idle > limit {
			w.t.Errorf("no write for %s after request %d, want %s at most", idle, i, limit)
		}
	}

	w.checkNoOverlap()
}

// listFences returns the fences of the requests, in order. If consecutive requests have the same
// fence, it returns the fence once.
func (w *world) listFences() (fences []int64) {
	for _, s := range w.cms.listRequests() {
		if len(fences) == 0 || fences[len(fences)-1] != s.fence {
			fences = append(fences, s.fence)
		}
	}
	return fences
}

func TestDrainer_HandOver(t *testing.T) {
	t.Parallel()
	t.Run("LeavesTheLaneAloneUntilItIsWoken", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.postBurst(500)
			p := w.start(withHost)
			p.Attend()
			p.Wake(0)
			p.Wake(0) // a wake before the hand-over must not make this process take the lane back
			time.Sleep(3 * time.Second)
			p.HandOver(0)
			time.Sleep(time.Second)
			tail, sent := w.control().Tail, len(w.cms.listRequests())
			if tail.IsOpen || tail.Counts.Delivered != int64(sent) || sent == 500 {
				t.Errorf("after the hand-over open %v, %d delivered, %d sent; want it not open, and all committed",
					tail.IsOpen, tail.Counts.Delivered, sent)
			}

			if n := p.ticketCounter.countAll(); n != 1 {
				t.Errorf("enqueued %d tickets, want one", n)
			}

			time.Sleep(10 * time.Second)
			if again := len(w.cms.listRequests()) - sent; again != 0 {
				t.Errorf("%d sent after the hand-over, want none", again)
			}

			if r := p.Look(t.Context(), 0); r.State != drain.Working {
				t.Errorf("Look for the ticket returned %+v, want the state %s", r, drain.Working)
			}

			w.waitUntilEmpty(time.Minute)
			w.checkWrittenOnce(500, 12*time.Second)
		})
	})

	t.Run("FinishesTheAttemptUnderWay", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.setAnswer(answerAfter(10*time.Second, 200))
			w.postBurst(2)
			a, b := w.start(withHost), w.start(withHost)
			a.Wake(0)
			time.Sleep(3 * time.Second)
			a.HandOver(0)
			b.Wake(0)
			w.waitUntilEmpty(time.Minute)
			w.checkWrittenOnce(2, 10*time.Second)
		})
	})

	t.Run("TheProcessTakesTheLaneAgainAfterALease", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.postBurst(200)
			p := w.start(withHost)
			p.Wake(0)
			time.Sleep(time.Second)
			p.HandOver(0)
			w.waitUntilEmpty(time.Minute)
			w.checkWrittenOnce(200, 16*time.Second)
		})
	})

	t.Run("OfALaneOfNoHolderDoesNothing", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start(withHost)
			p.HandOver(0)
			w.postBurst(1)
			p.Wake(0)
			w.waitUntilEmpty(time.Second)
		})
	})
}

// A holder without an invocation enqueues a ticket after 2 s, and a further ticket each 15 s, so
// that an invocation comes.
func TestDrainer_AsksForAnInvocation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*drain.Config)
		attended bool
		messages int
		want     int
	}{
		"WhileItGoesOn":           {withHost, false, 1000, 2}, // the drain takes 20 s
		"NotWithOne":              {withHost, true, 1000, 0},
		"NotInTheFirstTwoSeconds": {withHost, false, 1, 0},
		"NotWithoutAHost":         {func(*drain.Config) {}, false, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
				w.postBurst(c.messages)
				p := w.start(c.change)
				if c.attended {
					p.Attend()
				}

				p.Wake(0)
				w.waitUntilEmpty(time.Minute)
				if n := p.ticketCounter.countNow(); n != c.want {
					t.Errorf("put %d tickets that are visible at once, want %d", n, c.want)
				}
			})
		})
	}
}

// While an invocation waits in Join, the host does not end the process. So Join must not return
// before Close has handed the lane over.
func TestDrainer_CloseHandsOverBeforeJoinReturns(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		w.postBurst(3)
		p := w.start(withHost)
		p.Attend()
		p.Wake(0)
		time.Sleep(time.Second)
		closed := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
			defer cancel()
			closed <- p.Close(ctx)
		}()

		p.Join(t.Context(), 0)

		if tail := w.control().Tail; tail.IsOpen || tail.Counts.Delivered != 1 ||
			p.ticketCounter.countAll() != 1 {
			t.Errorf("when Join returned the lane was open %v, %d delivered, %d tickets; want it handed over",
				tail.IsOpen, tail.Counts.Delivered, p.ticketCounter.countAll())
		}

		if err := w.takeFreeLease(); err != nil {
			t.Errorf("lease: %v", err)
		}

		if err := <-closed; err != nil {
			t.Error(err)
		}

		if r := p.Look(t.Context(), 0); r.Err == nil {
			t.Errorf("Look for a later ticket returned %+v, want an error, so that the host puts the ticket back", r)
		}

		if r := p.Claim(t.Context(), 0); r.Err == nil {
			t.Errorf("a later Claim returned %+v, want an error", r)
		}
	})
}

// takeFreeLease acquires and releases the lease of the lane. It returns an error if a process has
// the lease.
func (w *world) takeFreeLease() error {
	const id = "00000000-0000-4000-8000-000000000000"
	leases := w.account.Leases()
	if err := leases.Acquire(w.t.Context(), w.store.LeaseName(0), id, leaseLength); err != nil {
		return err
	}
	return leases.Release(w.t.Context(), w.store.LeaseName(0), id)
}
