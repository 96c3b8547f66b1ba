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
	"weir/internal/testkit/lanetest"
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
		c := w.waitUntilEmpty(time.Minute)
		log := w.cms.listRequests()
		next := slices.IndexFunc(log, func(s sent) bool { return s.fence == 2 })
		const latest = leaseLength + settleTime + allowedSkew
		if next < 0 {
			t.Fatalf("got %d requests, none of a second holder; want one within %v",
				len(log), latest)
		}

		if took := log[next].at.Sub(killed); took > latest {
			t.Errorf("the second holder sent after %v, want within %v", took, latest)
		}

		repeats := len(log) - 100
		if repeats < 0 || repeats > 64 {
			t.Errorf("got %d requests for 100 messages, want 100 to 164", len(log))
		}

		w.checkNoOverlap()
		if c.Tail.Counts.Delivered != 100 {
			t.Errorf("books: got %+v, want 100 delivered", c)
		}

		w.neverBackwards(10)
	})
}

// A process that holds several lanes is killed while storage commits nothing. The bound of repeats
// is that of each lane, not of the process.
func TestDrainer_Crash_TheBoundOfRepeatsIsThatOfALane(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		const lanes, messages = 4, 100
		w := newWorldOf(t, lanes)
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))

		for number, i := 0, 0; number < lanes; number++ {
			for left := messages; left > 0; i++ {
				if key := fmt.Sprint("k", i); w.store.LaneOf(key) == number {
					w.post(key, "x")
					left--
				}
			}
		}

		a := w.start()
		var taken atomic.Int64
		a.faults.Set(func(c storagetest.Call) storagetest.Fault {
			// each lane is taken, and then no commit succeeds
			if isTail(c) && taken.Add(1) > lanes {
				return storagetest.Fault{Kind: storagetest.Hang}
			}
			return storagetest.Fault{}
		})

		for number := range lanes {
			a.Wake(number)
		}

		time.Sleep(2 * time.Second)
		a.kill()
		b := w.start()
		for number := range lanes {
			b.Wake(number)
		}

		time.Sleep(time.Minute)

		sentOf, keysOf := map[int]int{}, map[int]map[string]bool{}
		for _, s := range w.cms.listRequests() {
			number := w.store.LaneOf(s.key)
			if keysOf[number] == nil {
				keysOf[number] = map[string]bool{}
			}
			sentOf[number]++
			keysOf[number][s.key] = true
		}

		for number := range lanes {
			if repeats := sentOf[number] - len(keysOf[number]); repeats != 64 ||
				len(keysOf[number]) != messages {
				t.Errorf("lane %d: got %d repeats of %d messages, want 64 of %d", number, repeats,
					len(keysOf[number]), messages)
			}
		}
	})
}

// A holder crashes after it has delivered all messages. A sweep finds the lane, and the settle time
// passes before the next message comes. That message is delivered at once.
func TestDrainer_Crash_ALaneLeftAtRestIsReadyForTheNextMessage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		a, b := w.start(), w.start()
		w.post("a", "1")
		a.Wake(0)
		time.Sleep(time.Second)
		a.kill()
		b.Wake(0)
		time.Sleep(time.Second)

		if fence := w.control().Tail.Fence; fence != 1 {
			t.Errorf("fence %d a second after the crash, want 1: the holder can still be alive",
				fence)
		}

		time.Sleep(time.Minute)
		b.Wake(0) // the sweep
		time.Sleep(time.Minute)
		if tail := w.control().Tail; tail.IsOpen || tail.Fence != 2 || tail.Crashes != 1 {
			t.Errorf("tail after the sweep: %+v, want a free lane with fence 2 and a crash", tail)
		}

		b.Wake(0)
		time.Sleep(time.Second)

		if fence := w.control().Tail.Fence; fence != 2 {
			t.Errorf("fence %d after the next sweep, want 2: the lane has no holder to replace",
				fence)
		}

		w.post("a", "2")
		b.Wake(0)
		time.Sleep(settleTime / 2)
		if n := len(w.cms.listRequests()); n != 2 {
			t.Errorf("%d requests %s after the second message, want 2", n, settleTime/2)
		}
	})
}

func TestDrainer_Crash_AWatchOfMinutesNoticesACrashInTimeAndAsksLittle(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Second, 200))
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
			t.Errorf("the lease was tried %d times while its holder was at work, want at most 5",
				tries.Load())
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

func TestDrainer_Crash_AHolderThatStoodStillPastItsLeaseIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		stuck := make(chan struct{})
		var first atomic.Bool
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if first.CompareAndSwap(false, true) {
				<-stuck // the process stalls, and does not notice the end of ctx
				return newAnswer(200)
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
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
		w.waitUntilEmpty(time.Minute)
		before := w.control()
		close(stuck)
		time.Sleep(10 * time.Second)
		after := w.control()
		if after.Tail.Counts != before.Tail.Counts || after.Tail.Fence < 2 {
			t.Errorf("the former holder wrote: %+v → %+v, want Counts %v and Fence at least 2",
				before.Tail, after.Tail, before.Tail.Counts)
		}

		if st := w.status(id); st.AttemptCount != 1 || st.Attempts[0].Fence != 2 {
			t.Errorf("status: %+v, want AttemptCount 1 and Fence 2", st)
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
		c := w.waitUntilEmpty(time.Minute)
		if len(w.cms.listRequests()) != 30 || c.Tail.Counts.Delivered != 30 {
			t.Errorf("%d requests, books %+v, want 30 requests and Delivered 30",
				len(w.cms.listRequests()), c)
		}
	})
}

func TestDrainer_Crash_APendingKeyWaitsForItsCommit(t *testing.T) {
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
		w.waitUntilEmpty(time.Minute)
		log := w.cms.listRequests()
		if len(log) != 2 || log[1].at.Sub(log[0].end) < 300*time.Millisecond {
			t.Errorf("got %v, want two requests with 300 ms of failed commits between them", log)
		}
	})
}

func TestDrainer_Crash_AMessageThatEndsTheProcessGoesDeadAndOthersDoNot(t *testing.T) {
	checkKillerGoesDead(t, settleTime)
}

// After a crash, the next holder sends no message until the settle time has passed. In this test
// the settle time is so long that the next holder hands the lane over before it sends a message.
// The crashes before and after this hand-over still count as crashes in a row.
func TestDrainer_Crash_AMessageThatEndsTheProcessGoesDeadWithALongSettleTime(t *testing.T) {
	checkKillerGoesDead(t, 5*settleTime)
}

// checkKillerGoesDead checks that a message becomes dead if it ends each process that sends it.
// Another message must be delivered.
func checkKillerGoesDead(t *testing.T, settle time.Duration) {
	t.Helper()
	simulate(t, func(t *testing.T, w *world) {
		var current atomic.Pointer[process]
		crash := make(chan struct{}, 1)
		w.cms.setAnswer(func(ctx context.Context, d weir.Delivery) weir.Result {
			if d.Message.Key == "killer" {
				current.Load().kill()
				crash <- struct{}{}
				<-ctx.Done()
				return weir.Result{Outcome: weir.OutcomeNone}
			}
			return answerAfter(time.Millisecond, 200)(ctx, d)
		})

		id := w.post("killer", "x")
		good := w.post("good", "y")

		for crashes := 0; ; crashes++ {
			if crashes > 12 {
				t.Fatalf("the killer ended the process %d times, want it dead", crashes)
			}

			p := w.start(func(c *drain.Config) { c.Settle = settle })
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

		w.waitUntilEmpty(time.Minute)

		if st := w.status(id); st.Stage != weir.Dead ||
			!strings.Contains(st.LastError, "it need not be the cause") {
			t.Errorf("killer: %+v, want it dead without being called the cause", st)
		}

		if st := w.status(good); st.Stage != weir.Delivered {
			t.Errorf("good: %+v, want Stage delivered", st)
		}
	})
}

func TestDrainer_Crash_AMessageThatEndedTheProcessIsSentAgainIfReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		id := w.post("a", "x")

		// These are columns of tail. TryingCrashes counts two holders that crashed while they sent
		// this message. Open shows that a third holder has crashed.
		if _, err := w.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Open": true, "Crashes": int64(2), "Trying": id.Seq,
					"TryingCrashes": int64(2), "TryingFence": w.control().Tail.Fence}}}); err !=
			nil {
			t.Fatal(err)
		}

		p := w.start()
		p.Wake(0)
		w.waitUntilIdle()
		if st := w.status(id); st.Stage != weir.Dead || len(w.cms.listRequests()) != 0 {
			t.Fatalf("got %+v, want Stage dead and 0 requests", st)
		}

		w.replay(id, lane.ReplayOptions{})
		p.Wake(0)
		w.waitUntilIdle()

		if st := w.status(id); st.Stage != weir.Delivered ||
			st.Attempts[1].Fence != st.Attempts[0].Fence {
			t.Errorf("got %+v, want Stage delivered and Fence %v", st, st.Attempts[0].Fence)
		}
	})
}

// A holder can crash before it has named a message in tail, for example because of a message of
// another lane. Then the message that an earlier holder named in tail is not the cause.
func TestDrainer_Crash_OfAHolderThatNamedNoMessageCountsAgainstNone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		id := w.post("a", "x")
		if _, err := w.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Open": true, "Fence": int64(7), "Crashes": int64(4),
					"Trying":        id.Seq,
					"TryingCrashes": int64(2), "TryingFence": int64(6)}}}); err != nil {
			t.Fatal(err)
		}

		w.start().Wake(0)
		w.waitUntilIdle()
		if st := w.status(id); st.Stage != weir.Delivered {
			t.Errorf("got %+v, want Stage delivered", st)
		}
	})
}

func TestDrainer_Crash_CloseLetsTheAttemptUnderWayFinish(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		for i := range 3 {
			w.post("a", fmt.Sprint(i))
		}

		a, b := w.start(), w.start()
		a.Wake(0)
		time.Sleep(time.Second)
		b.Wake(0)
		a.close(t)

		if c := w.control(); c.Tail.IsOpen || c.Tail.Counts.Delivered != 1 ||
			!c.Tail.SettleUntil.IsZero() {
			t.Errorf("after a graceful stop: %+v, want IsOpen false, Delivered 1 and no SettleUntil", c.Tail)
		}

		stopped := time.Now()
		w.waitUntilEmpty(time.Minute)
		log := w.cms.listRequests()
		if len(log) != 3 || log[1].at.Sub(stopped) > time.Second {
			t.Errorf("%d requests, the second %s after the stop, want 3 and at most 1s", len(log),
				log[1].at.Sub(stopped))
		}
	})
}

func TestDrainer_Crash_CloseCutsOffHandsOnAndReleases(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(5*time.Second, 200))
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
			t.Errorf("tail after a graceful stop with a request cut off: %+v, want it not open, with a settle time",
				c.Tail)
		}

		if a.ticketCounter.countAll() != 1 {
			t.Errorf("got %d tickets for the work left, want 1", a.ticketCounter.countAll())
		}

		b := w.start()
		b.Wake(0)
		w.waitUntilEmpty(time.Minute)

		for _, s := range w.cms.listRequests()[1:] {
			if s.fence != 2 {
				t.Errorf("fence %d, want 2", s.fence)
			}
		}
	})
}

func TestDrainer_Crash_JoinReportsWorkingAtTheLimitAndBusyElsewhere(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(10*time.Second, 200))
		w.post("a", "x")
		a, b := w.start(), w.start()
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := a.Join(limited, 0); r.State != drain.Working {
			t.Errorf("holder: %+v, want State %v", r, drain.Working)
		}

		if r := b.Join(t.Context(), 0); r.State != drain.Busy {
			t.Errorf("other: %+v, want State %v", r, drain.Busy)
		}

		if r := a.Join(t.Context(), 0); r.State != drain.Idle {
			t.Errorf("after the end: %+v, want State %v", r, drain.Idle)
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
		p.faults.Set(func(storagetest.Call) storagetest.Fault {
			return storagetest.Fault{
				Kind: storagetest.FailBefore}
		})

		time.Sleep(time.Minute)
		p.faults.Set(nil)
		c := w.waitUntilEmpty(2 * time.Minute)
		if c.Tail.Counts.Delivered != 100 {
			t.Errorf("books: got %+v, want 100 delivered", c)
		}

		w.checkNoOverlap()
		w.neverBackwards(10)
	})
}

// neverBackwards checks that no message was delivered after a newer message of its key.
func (w *world) neverBackwards(keys int) {
	w.t.Helper()
	for k := range keys {
		last := -1
		for _, s := range w.cms.listRequests() {
			if s.key != fmt.Sprint("k", k) || s.result.Outcome != weir.OutcomeDelivered {
				continue
			}

			var n int
			fmt.Sscan(s.body, &n)
			if n < last {
				w.t.Errorf("key k%d: %d was delivered after %d, want at least %v", k, n, last, last)
			}

			last = n
		}
	}
}
