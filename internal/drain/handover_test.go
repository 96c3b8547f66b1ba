package drain_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func hosted(c *drain.Config) { c.Hosted = true }

// burst files messages of many keys.
func (w *world) burst(count int) {
	for i := range count {
		w.post(fmt.Sprint("k", i), "x")
	}
}

// movedOnce checks that every message was written once, and how long the lane stood at most
// between two writes.
func (w *world) movedOnce(count int, stands time.Duration) {
	w.t.Helper()
	log := w.cms.requests()
	if len(log) != count {
		w.t.Errorf("%d requests, want %d", len(log), count)
	}
	for i := 1; i < len(log); i++ {
		if stood := log[i].at.Sub(log[i-1].end); stood > stands {
			w.t.Errorf("the lane stood for %s after request %d, want %s at most", stood, i, stands)
		}
	}
	w.noOverlap()
}

// fences returns the fences in the order of the requests, each once.
func (w *world) fences() (fences []int64) {
	for _, s := range w.cms.requests() {
		if len(fences) == 0 || fences[len(fences)-1] != s.fence {
			fences = append(fences, s.fence)
		}
	}
	return fences
}

func TestDrainer_Claim_AHolderWithoutAnInvocationHandsOver(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.burst(500)
		a, b := w.start(hosted), w.start(hosted)
		a.Wake(0)
		time.Sleep(3 * time.Second)
		b.Attend()
		if r := b.Look(t.Context(), 0); r.State != drain.Busy {
			t.Fatalf("%+v, want %s", r, drain.Busy)
		}
		asked := time.Now()
		r := b.Claim(t.Context(), 0)
		if took := time.Since(asked); r.State != drain.Working || took > 2*time.Second {
			t.Errorf("%+v after %s, want %s within 2s", r, took, drain.Working)
		}
		for range 20 { // who filed it is woken, and takes nothing back
			a.Wake(0)
			time.Sleep(100 * time.Millisecond)
		}
		w.settled(time.Minute)
		w.movedOnce(500, time.Second)
		if fences := w.fences(); len(fences) != 2 {
			t.Errorf("fences %v, want two holders", fences)
		}
		if n := a.bell.rings(); n != 1 {
			t.Errorf("the first holder rang %d times, want once: for an invocation, not for a lane that another takes",
				n)
		}
	})
}

func TestDrainer_Claim_AHolderWithAnInvocationKeepsTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.burst(1500)
		a, b := w.start(hosted), w.start(hosted)
		a.Attend()
		a.Wake(0)
		time.Sleep(time.Second)
		b.Attend()
		asked := time.Now()
		b.Look(t.Context(), 0)
		if r := b.Claim(t.Context(), 0); r.State != drain.Busy || time.Since(asked) != claimLength {
			t.Errorf("%+v after %s, want %s after 15s", r, time.Since(asked), drain.Busy)
		}
		w.settled(time.Minute)
		w.movedOnce(1500, 200*time.Millisecond)
	})
}

func TestDrainer_Claim_WaitsForWhatIsDueSoon(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		due := time.Now().Add(20 * time.Second)
		w.post("a", "x", func(m *weir.Message) { m.DueAt = due })
		a, b := w.start(hosted), w.start(hosted)
		a.Wake(0)
		time.Sleep(19300 * time.Millisecond) // it is there, and waits for the moment
		b.Attend()
		b.Look(t.Context(), 0)
		b.Claim(t.Context(), 0)
		w.settled(time.Minute)
		if at := w.cms.requests()[0].at; at.Before(due) || at.Sub(due) > 10*time.Millisecond {
			t.Errorf("sent %s after its moment, want it at the moment", at.Sub(due))
		}
	})
}

func TestDrainer_Claim_OutsideOfAHostClaimsDoNotCount(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.burst(300)
		a, b := w.start(), w.start(hosted)
		a.Wake(0)
		time.Sleep(time.Second)
		b.Look(t.Context(), 0)
		b.Claim(t.Context(), 0)
		a.HandOver(0)
		w.settled(time.Minute)
		if fences := w.fences(); len(fences) != 1 {
			t.Errorf("fences %v, want one holder", fences)
		}
	})
}

func TestDrainer_Claim_IsLeftToTheFirst(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.burst(1000)
		a, b := w.start(hosted), w.start(hosted)
		a.Attend()
		a.Wake(0)
		time.Sleep(time.Second)
		w.claim("a third", claimLength)
		time.Sleep(time.Second)
		b.Look(t.Context(), 0)
		asked, puts := time.Now(), 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" {
				puts++
			}
			return storagetest.Fault{}
		})
		if r := b.Claim(t.Context(), 0); r.State != drain.Busy || time.Since(asked) != 0 || puts != 0 {
			t.Errorf("%+v after %s and %d transactions, want %s at once", r, time.Since(asked), puts, drain.Busy)
		}
	})
}

func TestDrainer_Claim_OfOneThatDiedIsOverAfterItsTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.claim("a dead one", claimLength)
		w.burst(1)
		asked := time.Now()
		w.start(hosted).Wake(0)
		w.settled(time.Minute)
		if took := time.Since(asked); took < claimLength-time.Second || took > claimLength+noticeWithin {
			t.Errorf("delivered after %s, want a little over 15s", took)
		}
	})
}

func TestDrainer_Claim_OfAWrongClockIsNotBelieved(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.claim("one that is ahead", time.Hour)
		w.burst(1)
		w.start(hosted).Wake(0)
		w.settled(time.Second)
	})
}

func TestDrainer_Claim_ThatCannotBeWrittenChangesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.burst(100)
		a, b := w.start(hosted), w.start(hosted)
		a.Wake(0)
		time.Sleep(time.Second)
		b.Look(t.Context(), 0)
		b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
			storagetest.Fault{Kind: storagetest.FailBefore})
		if r := b.Claim(t.Context(), 0); r.State != drain.Busy || r.Err != nil {
			t.Errorf("%+v, want %s", r, drain.Busy)
		}
		w.settled(time.Minute)
		w.movedOnce(100, 200*time.Millisecond)
	})
}

// The claim ends with the work: the process that files the next message sends it at once.
func TestDrainer_AClaimToALaneWithoutWorkIsWithdrawn(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.burst(100)
		a, b := w.start(hosted), w.start(hosted)
		a.Attend()
		a.Wake(0)
		time.Sleep(time.Second)
		b.Attend()
		if r := b.Look(t.Context(), 0); r.State != drain.Busy {
			t.Fatalf("%+v, want %s", r, drain.Busy)
		}
		if r := b.Claim(t.Context(), 0); r.State != drain.Idle {
			t.Fatalf("Claim of a lane that its holder empties = %+v, want %s", r, drain.Idle)
		}
		a.Yield()
		time.Sleep(4 * time.Second) // it does not linger any more
		filed := time.Now()
		w.post("next", "x")
		a.Wake(0)
		w.settled(time.Minute)
		log := w.cms.requests()
		if waited := log[len(log)-1].at.Sub(filed); waited > time.Second {
			t.Errorf("the next message was sent after %s, want at once", waited)
		}
	})
}

// claim writes a claim of a process that does nothing more.
func (w *world) claim(by string, d time.Duration) {
	w.t.Helper()
	if err := w.store.PutClaim(w.t.Context(), 0, lane.Claim{By: by, Until: time.Now().Add(d)}); err != nil {
		w.t.Fatal(err)
	}
}

func TestDrainer_HandOver(t *testing.T) {
	t.Parallel()
	t.Run("LeavesTheLaneAloneUntilItIsWoken", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.burst(500)
			p := w.start(hosted)
			p.Attend()
			p.Wake(0)
			p.Wake(0) // of what was filed before
			time.Sleep(3 * time.Second)
			p.HandOver(0)
			time.Sleep(time.Second)
			tail, sent := w.control().Tail, len(w.cms.requests())
			if tail.IsOpen || tail.Counts.Delivered != int64(sent) || sent == 500 {
				t.Errorf("after the hand-over open %v, %d delivered, %d sent; want all that was sent committed",
					tail.IsOpen, tail.Counts.Delivered, sent)
			}
			if n := p.bell.rings(); n != 1 {
				t.Errorf("rang %d times, want once", n)
			}
			time.Sleep(10 * time.Second)
			if again := len(w.cms.requests()) - sent; again != 0 {
				t.Errorf("%d sent after the hand-over, want none", again)
			}
			if r := p.Look(t.Context(), 0); r.State != drain.Working {
				t.Errorf("its ticket led to %+v, want %s", r, drain.Working)
			}
			w.settled(time.Minute)
			w.movedOnce(500, 12*time.Second)
		})
	})
	t.Run("FinishesTheWriteInHand", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.set(takes(10*time.Second, 200))
			w.burst(2)
			a, b := w.start(hosted), w.start(hosted)
			a.Wake(0)
			time.Sleep(3 * time.Second)
			a.HandOver(0)
			b.Wake(0)
			w.settled(time.Minute)
			w.movedOnce(2, 10*time.Second)
		})
	})
	t.Run("IsMadeUpForAfterALease", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.burst(200)
			p := w.start(hosted)
			p.Wake(0)
			time.Sleep(time.Second)
			p.HandOver(0)
			w.settled(time.Minute)
			w.movedOnce(200, 16*time.Second)
		})
	})
	t.Run("OfALaneThatIsNotHeldDoesNothing", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start(hosted)
			p.HandOver(0)
			w.burst(1)
			p.Wake(0)
			w.settled(time.Second)
		})
	})
}

// A holder that no invocation stays with rings for one, but not for a drain of a second.
func TestDrainer_CallsForAnInvocation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*drain.Config)
		attended bool
		messages int
		want     int
	}{
		"WhileItGoesOn":   {hosted, false, 1000, 2}, // 20 s
		"NotWithOne":      {hosted, true, 1000, 0},
		"NotForAShortOne": {hosted, false, 1, 0},
		"NotWithoutAHost": {func(*drain.Config) {}, false, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.set(takes(20*time.Millisecond, 200))
				w.burst(c.messages)
				p := w.start(c.change)
				if c.attended {
					p.Attend()
				}
				p.Wake(0)
				w.settled(time.Minute)
				if n := p.bell.ringsNow(); n != c.want {
					t.Errorf("put %d tickets that are visible at once, want %d", n, c.want)
				}
			})
		})
	}
}

// An invocation that waits for a drain keeps the host from ending the process. So it waits until
// the lane has been handed over.
func TestDrainer_CloseHandsOverBeforeJoinReturns(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(2*time.Second, 200))
		w.burst(3)
		p := w.start(hosted)
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
		if tail := w.control().Tail; tail.IsOpen || tail.Counts.Delivered != 1 || p.bell.rings() != 1 {
			t.Errorf("when Join returned the lane was open %v, %d delivered, rung %d times; want it handed over",
				tail.IsOpen, tail.Counts.Delivered, p.bell.rings())
		}
		if err := p.leaseIsFree(w); err != nil {
			t.Errorf("lease: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if r := p.Look(t.Context(), 0); r.Err == nil {
			t.Errorf("a ticket that came later led to %+v, want an error: it has to go back", r)
		}
		if r := p.Claim(t.Context(), 0); r.Err == nil {
			t.Errorf("a claim later led to %+v, want an error", r)
		}
	})
}

// leaseIsFree takes the lease of the lane, and gives it back.
func (p *process) leaseIsFree(w *world) error {
	const id = "00000000-0000-4000-8000-000000000000"
	leases := w.account.Leases()
	if err := leases.Acquire(w.t.Context(), w.store.LeaseName(0), id, leaseLength); err != nil {
		return err
	}
	return leases.Release(w.t.Context(), w.store.LeaseName(0), id)
}
