package drain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestDrainer_Crash_AnotherTakesOverWithinALeaseAndRepeatsOnlyTheUncommitted(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for i := range 100 {
			w.post(fmt.Sprint("k", i%10), fmt.Sprint(i))
		}
		a, b := w.start(), w.start()
		a.Wake(0)
		time.Sleep(500 * time.Millisecond)
		b.Wake(0)
		a.kill()
		killed := time.Now()
		c := w.settled(time.Minute)
		log := w.cms.requests()
		next := slices.IndexFunc(log, func(s sent) bool { return s.fence == 2 })
		const latest = leaseLength + settleTime + allowedSkew
		if next < 0 {
			t.Fatalf("got %d requests, none of a second holder; want one within %v", len(log), latest)
		}
		if took := log[next].at.Sub(killed); took > latest {
			t.Errorf("the second holder sent after %v, want within %v", took, latest)
		}
		repeats := len(log) - 100
		if repeats < 0 || repeats > 64 {
			t.Errorf("got %d requests for 100 messages, want 100 to 164", len(log))
		}
		w.noOverlap()
		if c.Tail.Counts.Delivered != 100 {
			t.Errorf("books: got %+v, want 100 delivered", c)
		}
		w.neverBackwards(10)
	})
}

func TestDrainer_Crash_AWatchOfMinutesNoticesACrashInTimeAndAsksLittle(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(time.Second, 200))
		for i := range 400 {
			w.post(fmt.Sprint("k", i), "x")
		}
		a, b := w.start(), w.start()
		var tries atomic.Int64
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Acquire" {
				tries.Add(1)
			}
			return storagetest.Fault{}
		})
		a.Wake(0)
		time.Sleep(500 * time.Millisecond)
		b.Wake(0)
		time.Sleep(3 * time.Minute)
		if tries.Load() > 5 {
			t.Errorf("the lease was tried %d times while its holder was at work", tries.Load())
		}
		a.kill()
		killed := time.Now()
		for w.control().Tail.Fence < 2 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(killed); took > leaseLength+noticeWithin {
			t.Errorf("taken over after %s, want within %s", took, leaseLength+noticeWithin)
		}
	})
}

func TestDrainer_Crash_APausedProcessThatWakesAfterItsLeaseIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		stuck := make(chan struct{})
		var first atomic.Bool
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if first.CompareAndSwap(false, true) {
				<-stuck // the process stands still: it does not even notice its context
				return answer(200)
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		id := w.post("a", "x")
		a, b := w.start(), w.start()
		a.Wake(0)
		time.Sleep(10 * time.Millisecond)
		a.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Renew" {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})
		b.Wake(0)
		w.settled(time.Minute)
		before := w.control()
		close(stuck)
		time.Sleep(10 * time.Second)
		after := w.control()
		if after.Tail.Counts != before.Tail.Counts || after.Tail.Fence < 2 {
			t.Errorf("the former holder wrote: %+v → %+v", before.Tail, after.Tail)
		}
		if st := w.status(id); st.AttemptCount != 1 || st.Attempts[0].Fence != 2 {
			t.Errorf("status: %+v", st)
		}
	})
}

func TestDrainer_Crash_ACommitThatLandsUnansweredIsNotRepeated(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		n := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isTail(c) {
				if n++; n%2 == 0 {
					return storagetest.Fault{Kind: storagetest.FailAfter}
				}
			}
			return storagetest.Fault{}
		})
		for i := range 30 {
			w.post("a", fmt.Sprint(i))
		}
		p.Wake(0)
		c := w.settled(time.Minute)
		if len(w.cms.requests()) != 30 || c.Tail.Counts.Delivered != 30 {
			t.Errorf("%d requests, books %+v", len(w.cms.requests()), c)
		}
	})
}

func TestDrainer_Crash_AClosedKeyWaitsForItsCommit(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		commits := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isTail(c) && len(c.Ops) > 1 {
				if commits++; commits <= 3 {
					return storagetest.Fault{Kind: storagetest.FailBefore}
				}
			}
			return storagetest.Fault{}
		})
		w.post("a", "0")
		w.post("a", "1")
		p.Wake(0)
		w.settled(time.Minute)
		log := w.cms.requests()
		if len(log) != 2 || log[1].at.Sub(log[0].end) < 300*time.Millisecond {
			t.Errorf("the second of the key did not wait for three failed commits: %v", log)
		}
	})
}

func TestDrainer_Crash_AMessageThatEndsTheProcessGoesDeadAndOthersDoNot(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		var current atomic.Pointer[process]
		crash := make(chan struct{}, 1)
		w.cms.set(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "killer" {
				current.Load().kill()
				crash <- struct{}{}
				<-ctx.Done()
				return weir.Result{Outcome: weir.OutcomeNone}
			}
			return takes(time.Millisecond, 200)(ctx, d)
		})
		id := w.post("killer", "x")
		good := w.post("good", "y")
		for crashes := 0; ; crashes++ {
			if crashes > 12 {
				t.Fatal("the killer goes on killing")
			}
			p := w.start()
			current.Store(p)
			p.Wake(0)
			died := false
			for range 240 {
				select {
				case <-crash:
					died = true
				case <-time.After(250 * time.Millisecond):
				}
				if died || w.control().WaitingCount() == 0 {
					break
				}
			}
			if !died {
				break
			}
		}
		w.settled(time.Minute)
		if st := w.status(id); st.Stage != weir.Dead || !strings.Contains(st.LastError, "it need not be the cause") {
			t.Errorf("killer: %+v, want it dead without being called the cause", st)
		}
		if st := w.status(good); st.Stage != weir.Delivered {
			t.Errorf("good: %+v", st)
		}
	})
}

func TestDrainer_Crash_AMessageThatEndedTheProcessIsSentAgainWhereItIsReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		id := w.post("a", "x")
		// Three holders died while they sent it.
		if _, err := w.account.Table().Transact(t.Context(), "1.0", []storage.Op{{Kind: storage.Merge, Key: "!tail",
			Values: map[string]any{"Open": true, "Crashes": int64(2), "Trying": id.Seq,
				"TryingCrashes": int64(2)}}}); err != nil {
			t.Fatal(err)
		}
		p := w.start()
		p.Wake(0)
		w.rests()
		if st := w.status(id); st.Stage != weir.Dead || len(w.cms.requests()) != 0 {
			t.Fatalf("%+v", st)
		}
		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		w.rests()
		if st := w.status(id); st.Stage != weir.Delivered || st.Attempts[1].Fence != st.Attempts[0].Fence {
			t.Errorf("%+v", st)
		}
	})
}

func TestDrainer_Crash_CloseLetsTheAttemptUnderWayFinish(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(2*time.Second, 200))
		for i := range 3 {
			w.post("a", fmt.Sprint(i))
		}
		a, b := w.start(), w.start()
		a.Wake(0)
		time.Sleep(time.Second)
		b.Wake(0)
		a.close(t)
		if c := w.control(); c.Tail.IsOpen || c.Tail.Counts.Delivered != 1 || !c.Tail.SettleUntil.IsZero() {
			t.Errorf("after a graceful stop: %+v", c.Tail)
		}
		stopped := time.Now()
		w.settled(time.Minute)
		log := w.cms.requests()
		if len(log) != 3 || log[1].at.Sub(stopped) > time.Second {
			t.Errorf("%d requests, the second %s after the stop", len(log), log[1].at.Sub(stopped))
		}
	})
}

func TestDrainer_Crash_CloseCutsOffHandsOnAndReleases(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(5*time.Second, 200))
		w.post("a", "x")
		w.post("b", "y")
		a := w.start()
		a.Wake(0)
		time.Sleep(time.Second)
		soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := a.Close(soon); err != nil {
			t.Error(err)
		}
		c := w.control()
		if c.Tail.IsOpen || !c.Tail.SettleUntil.After(time.Now()) {
			t.Errorf("tail after a graceful stop with a request cut off: %+v", c.Tail)
		}
		if a.bell.rings() != 1 {
			t.Errorf("rang %d times for the work left", a.bell.rings())
		}
		b := w.start()
		b.Wake(0)
		w.settled(time.Minute)
		for _, s := range w.cms.requests()[1:] {
			if s.fence != 2 {
				t.Errorf("fence %d", s.fence)
			}
		}
	})
}

func TestDrainer_Crash_JoinTellsWorkingAtItsLimitAndBusyElsewhere(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.set(takes(10*time.Second, 200))
		w.post("a", "x")
		a, b := w.start(), w.start()
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := a.Join(limited, 0); r.State != drain.Working {
			t.Errorf("holder: %+v", r)
		}
		if r := b.Join(t.Context(), 0); r.State != drain.Busy {
			t.Errorf("other: %+v", r)
		}
		if r := a.Join(t.Context(), 0); r.State != drain.Idle {
			t.Errorf("after the end: %+v", r)
		}
	})
}

func TestDrainer_Crash_StorageAwayForAWhileLosesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		for i := range 100 {
			w.post(fmt.Sprint("k", i%10), fmt.Sprint(i))
		}
		p.Wake(0)
		time.Sleep(500 * time.Millisecond)
		p.faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })
		time.Sleep(time.Minute)
		p.faults.Set(nil)
		c := w.settled(2 * time.Minute)
		if c.Tail.Counts.Delivered != 100 {
			t.Errorf("books: got %+v, want 100 delivered", c)
		}
		w.noOverlap()
		w.neverBackwards(10)
	})
}

// neverBackwards checks that no repeat of a key's message came after a newer one's.
func (w *world) neverBackwards(keys int) {
	w.t.Helper()
	for k := range keys {
		last := -1
		for _, s := range w.cms.requests() {
			if s.key != fmt.Sprint("k", k) || s.result.Outcome != weir.OutcomeDelivered {
				continue
			}
			var n int
			fmt.Sscan(s.body, &n)
			if n < last {
				w.t.Errorf("key k%d: %d was delivered after %d", k, n, last)
			}
			last = n
		}
	}
}
