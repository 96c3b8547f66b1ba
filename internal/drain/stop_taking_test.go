package drain_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage/storagetest"
)

// After StopTaking a process takes no lane for ten minutes, or until MarkTriggered is called. If a
// lane has work, the process enqueues tickets instead.
func TestDrainer_StopTaking(t *testing.T) {
	t.Parallel()
	t.Run("EnqueuesATicketForAnAppendedMessage", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start(withHost)
			p.StopTaking()

			for range 5 {
				w.post("a", "x")
				p.Wake(0)
				time.Sleep(10 * time.Millisecond)
			}

			time.Sleep(10 * time.Second)

			if sent, held, n := len(
				w.cms.listRequests()), p.Held(), p.ticketCounter.countNow(); sent != 0 ||
				len(held) != 0 || n != 1 {
				t.Errorf("%d sent, lanes %v held, %d tickets; want none sent, none held, one ticket", sent, held, n)
			}

			time.Sleep(10 * time.Second)
			if n := p.ticketCounter.countNow(); n != 2 {
				t.Errorf("%d tickets after 20s without a holder, want 2", n)
			}

			p.MarkTriggered()
			if r := p.Look(t.Context(), 0); r.State != drain.Working {
				t.Errorf("the look for a ticket = %+v, want %s", r, drain.Working)
			}

			w.waitUntilEmpty(time.Second)
		})
	})

	t.Run("EnqueuesATicketForEachTimeThatTheLaneIsLeft", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start(withHost)
			p.StopTaking()

			for n := range 3 {
				w.post("a", "x")
				p.Wake(0)
				time.Sleep(2 * time.Second)
				if got := p.ticketCounter.countNow(); got != n+1 {
					t.Errorf("%d tickets for message %d, want %d", got, n, n+1)
				}

				other := w.start(withHost)
				other.Wake(0)
				w.waitUntilEmpty(time.Second)
				other.close(t)
			}
		})
	})

	t.Run("EnqueuesAgainAfterAFailure", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start(withHost)
			p.ticketCounter.failNext(1)
			p.StopTaking()
			w.post("a", "x")
			p.Wake(0)
			time.Sleep(2 * time.Second)
			if n := p.ticketCounter.countNow(); n != 1 {
				t.Errorf("%d tickets, want one after a failure", n)
			}
		})
	})

	t.Run("KeepsItsLanes", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.postBurst(500)
			p := w.start(withHost)
			p.Wake(0)
			time.Sleep(time.Second)
			p.StopTaking()
			if held := p.Held(); !slices.Equal(held, []int{0}) {
				t.Errorf("holds lanes %v, want [0]", held)
			}

			w.waitUntilEmpty(time.Minute)
			w.checkWrittenOnce(500, 200*time.Millisecond)
		})
	})

	t.Run("ReleasesALeaseThatItAcquiresMeanwhile", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.postBurst(1)
			p := w.start(withHost)
			p.faults.Once(func(c storagetest.Call) bool {
				if c.Op == "Acquire" { // the look has begun, and the lease is not acquired yet
					p.StopTaking()
				}
				return false
			}, storagetest.Fault{})

			p.Wake(0)
			time.Sleep(time.Second)

			if err := w.takeFreeLease(); err != nil || len(w.cms.listRequests()) != 0 ||
				w.control().Tail.Fence != 0 {
				t.Errorf("lease: %v, %d sent, fence %d; want it free, none sent, no holder",
					err, len(w.cms.listRequests()), w.control().Tail.Fence)
			}
		})
	})

	t.Run("EndsByItself", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.postBurst(1)
			p := w.start(withHost)
			p.StopTaking()
			p.Wake(0)
			w.waitUntilEmpty(11 * time.Minute)
		})
	})
}
