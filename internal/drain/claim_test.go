package drain_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestDrainer_Claim_AHolderWithoutAnInvocationHandsOver(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(500)
		a, b := w.start(withHost), w.start(withHost)
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

		for range 20 { // process a is woken, as after an append, but must not take the lane back
			a.Wake(0)
			time.Sleep(100 * time.Millisecond)
		}

		w.waitUntilEmpty(time.Minute)
		w.checkWrittenOnce(500, time.Second)
		if fences := w.listFences(); len(fences) != 2 {
			t.Errorf("fences %v, want two holders", fences)
		}

		if n := a.ticketCounter.countAll(); n != 1 {
			t.Errorf("the first holder enqueued %d tickets, want one: for an invocation, not for the lane that b takes",
				n)
		}
	})
}

func TestDrainer_Claim_AHolderWithAnInvocationKeepsTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(1500)
		a, b := w.start(withHost), w.start(withHost)
		a.Attend()
		a.Wake(0)
		time.Sleep(time.Second)
		b.Attend()
		asked := time.Now()
		b.Look(t.Context(), 0)
		if r := b.Claim(t.Context(), 0); r.State != drain.Busy || time.Since(asked) != claimLength {
			t.Errorf("%+v after %s, want %s after 15s", r, time.Since(asked), drain.Busy)
		}

		w.waitUntilEmpty(time.Minute)
		w.checkWrittenOnce(1500, 200*time.Millisecond)
	})
}

func TestDrainer_Claim_WaitsForAMessageThatIsDueSoon(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		due := time.Now().Add(20 * time.Second)
		w.post("a", "x", func(m *weir.Message) { m.DueAt = due })
		a, b := w.start(withHost), w.start(withHost)
		a.Wake(0)
		time.Sleep(19300 * time.Millisecond) // the holder waits for the due time
		b.Attend()
		b.Look(t.Context(), 0)
		b.Claim(t.Context(), 0)
		w.waitUntilEmpty(time.Minute)
		if at := w.cms.listRequests()[0].at; at.Before(due) || at.Sub(due) > 10*time.Millisecond {
			t.Errorf("sent %s after its due time, want it at that time", at.Sub(due))
		}
	})
}

func TestDrainer_Claim_HasNoEffectOutsideOfAHost(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(300)
		a, b := w.start(), w.start(withHost)
		a.Wake(0)
		time.Sleep(time.Second)
		b.Look(t.Context(), 0)
		b.Claim(t.Context(), 0)
		a.HandOver(0)
		w.waitUntilEmpty(time.Minute)
		if fences := w.listFences(); len(fences) != 1 {
			t.Errorf("fences %v, want one holder", fences)
		}
	})
}

func TestDrainer_Claim_TheFirstClaimStays(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(1000)
		a, b := w.start(withHost), w.start(withHost)
		a.Attend()
		a.Wake(0)
		time.Sleep(time.Second)
		w.writeClaim("a third process", claimLength)
		time.Sleep(time.Second)
		b.Look(t.Context(), 0)
		asked, transactions := time.Now(), 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" {
				transactions++
			}
			return storagetest.Fault{}
		})

		if r := b.Claim(t.Context(), 0); r.State != drain.Busy || time.Since(asked) != 0 ||
			transactions != 0 {
			t.Errorf("%+v after %s and %d transactions, want %s at once", r, time.Since(asked),
				transactions, drain.Busy)
		}
	})
}

func TestDrainer_Claim_OfADeadProcessExpires(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.writeClaim("a dead process", claimLength)
		w.postBurst(1)
		asked := time.Now()
		w.start(withHost).Wake(0)
		w.waitUntilEmpty(time.Minute)

		if took := time.Since(asked); took < claimLength-time.Second ||
			took > claimLength+noticeWithin {
			t.Errorf("delivered after %s, want a little over 15s", took)
		}
	})
}

func TestDrainer_Claim_OfAWrongClockHasNoEffect(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.writeClaim("a process whose clock is ahead", time.Hour)
		w.postBurst(1)
		w.start(withHost).Wake(0)
		w.waitUntilEmpty(time.Second)
	})
}

func TestDrainer_Claim_ThatCannotBeWrittenChangesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(100)
		a, b := w.start(withHost), w.start(withHost)
		a.Wake(0)
		time.Sleep(time.Second)
		b.Look(t.Context(), 0)
		b.faults.Once(func(c storagetest.Call) bool { return c.Op == "Transact" },
			storagetest.Fault{Kind: storagetest.FailBefore})
		if r := b.Claim(t.Context(), 0); r.State != drain.Busy || r.Err != nil {
			t.Errorf("%+v, want %s", r, drain.Busy)
		}

		w.waitUntilEmpty(time.Minute)
		w.checkWrittenOnce(100, 200*time.Millisecond)
	})
}

// The holder hands a claimed lane over even if no message waits in the lane. Otherwise a lane whose
// messages come one at a time would stay with a holder that has no invocation.
func TestDrainer_Claim_ALaneMovesBetweenTwoMessages(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(20*time.Millisecond, 200))
		a, b := w.start(withHost), w.start(withHost)
		posted := 0
		postEvery := func(period, during time.Duration) {
			for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(period) {
				posted++
				w.post(fmt.Sprint("k", posted), "x")
				a.Wake(0)
			}
		}

		// process a holds the lane, and lingers between two messages
		postEvery(time.Second, 5*time.Second)
		b.Attend()

		if r := b.Look(t.Context(), 0); r.State != drain.Idle || r.HolderFence == 0 {
			t.Fatalf("Look between two messages = %+v, want %s and the fence of its holder", r,
				drain.Idle)
		}

		claimed := make(chan drain.Report, 1)
		go func() { claimed <- b.Claim(t.Context(), 0) }()
		postEvery(time.Second, 20*time.Second)
		if r := <-claimed; r.State != drain.Working {
			t.Errorf("Claim = %+v, want %s", r, drain.Working)
		}

		if a, b := a.Held(), b.Held(); len(a) != 0 || len(b) != 1 {
			t.Errorf("the former holder holds %v, and the process with an invocation %v; want none and [0]", a, b)
		}

		w.waitUntilEmpty(time.Minute)
		w.checkWrittenOnce(posted, 3*time.Second)
		if fences := w.listFences(); len(fences) != 2 {
			t.Errorf("fences %v, want two holders: the lane moves once", fences)
		}
	})
}

// A process claims a lane, finds no message in the lane, and leaves it after a while. The claim
// then ends, so that another process sends the next message at once.
func TestDrainer_Claim_EndsAfterALingerInAnEmptyLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(100)
		a, b := w.start(withHost), w.start(withHost)
		a.Attend()
		a.Wake(0)
		time.Sleep(time.Second)
		b.Attend()
		if r := b.Look(t.Context(), 0); r.State != drain.Busy {
			t.Fatalf("%+v, want %s", r, drain.Busy)
		}

		if r := b.Claim(t.Context(), 0); r.State != drain.Working {
			t.Fatalf("Claim of a lane that its holder empties = %+v, want %s", r, drain.Working)
		}

		a.Yield()
		time.Sleep(4 * time.Second) // process b no longer lingers
		if held := b.Held(); len(held) != 0 {
			t.Errorf("4 s later the process that claimed the lane holds %v, want none", held)
		}

		appended := time.Now()
		w.post("next", "x")
		a.Wake(0)
		w.waitUntilEmpty(time.Minute)
		log := w.cms.listRequests()
		if waited := log[len(log)-1].at.Sub(appended); waited > time.Second {
			t.Errorf("the next message was sent after %s, want at once", waited)
		}
	})
}

// After a crash, the field IsOpen in tail still says that a process holds the lane. A process that
// claims the lane becomes its holder, and clears IsOpen when it hands the lane over. Otherwise each
// later ticket would lead to another claim.
func TestDrainer_Claim_ClearsOpenAfterACrash(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(1)
		a, b := w.start(withHost), w.start(withHost)
		a.Wake(0)
		w.waitUntilEmpty(time.Second)
		a.kill()
		b.Attend()
		if r := b.Look(t.Context(), 0); r.State != drain.Idle || r.HolderFence == 0 {
			t.Fatalf("Look = %+v, want %s and the fence of its holder", r, drain.Idle)
		}

		for range 2 { // the first claim can end before the crashed holder's lease does
			b.Claim(t.Context(), 0)
		}

		time.Sleep(8 * time.Second) // the settle time, and the time for which b lingers
		if r := b.Look(t.Context(), 0); r.State != drain.Idle || r.HolderFence != 0 {
			t.Errorf("Look after the claim = %+v, want %s and no holder", r, drain.Idle)
		}
	})
}

// A change of the number of lanes can close a lane (Closed in tail) shortly before a process claims
// the lane.
func TestDrainer_Claim_OfAClosedLaneEnds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		if _, err := w.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Closed": true}}}); err != nil {
			t.Fatal(err)
		}

		p := w.start(withHost)
		p.Attend()
		if r := p.Claim(t.Context(), 0); r.State != drain.Idle || r.Err != nil {
			t.Errorf("Claim of a closed lane = %+v, want %s", r, drain.Idle)
		}

		if _, isClaimed := w.control().Claim(time.Now()); isClaimed {
			t.Error("the claim of the closed lane still counts, want it withdrawn")
		}
	})
}

// A claim ends when the process that claimed the lane has drained it. Then another process can take
// the lane at once.
func TestDrainer_Claim_EndsWithTheDrain(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.postBurst(300)
		a, b := w.start(withHost), w.start(withHost)
		a.Wake(0)
		time.Sleep(3 * time.Second)
		b.Attend()
		b.Look(t.Context(), 0)
		if r := b.Claim(t.Context(), 0); r.State != drain.Working {
			t.Fatalf("Claim = %+v, want %s", r, drain.Working)
		}

		w.waitUntilEmpty(time.Minute)
		b.Yield()
		time.Sleep(4 * time.Second) // process b no longer lingers
		appended := time.Now()
		w.post("next", "x")
		a.Wake(0)
		w.waitUntilEmpty(time.Minute)
		log := w.cms.listRequests()
		if waited := log[len(log)-1].at.Sub(appended); waited > time.Second {
			t.Errorf("the next message was sent after %s, want at once", waited)
		}
	})
}

// writeClaim writes a claim of a process that does not exist.
func (w *world) writeClaim(by string, d time.Duration) {
	w.t.Helper()
	if err := w.store.PutClaim(w.t.Context(), 0, lane.Claim{By: by, Until: time.Now().Add(d)}); err != nil {
		w.t.Fatal(err)
	}
}
