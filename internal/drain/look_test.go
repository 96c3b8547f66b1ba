package drain_test

import (
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage/storagetest"
)

func TestDrainer_Look(t *testing.T) {
	t.Parallel()
	t.Run("AnswersAtOnceWhileTheLaneIsDrainedHere", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.setAnswer(answerAfter(10*time.Second, 200))
			w.post("a", "x")
			p, asked := w.start(), time.Now()
			for _, when := range []string{"starting it", "draining it"} {
				if r := p.Look(t.Context(), 0); r.State != drain.Working {
					t.Errorf("%s: %+v, want %s", when, r, drain.Working)
				}
			}

			if took := time.Since(asked); took != 0 {
				t.Errorf("two looks took %s, want none of the CMS's time", took)
			}

			w.waitUntilEmpty(time.Minute)
			p.Join(t.Context(), 0)
			if r := p.Look(t.Context(), 0); r.State != drain.Idle {
				t.Errorf("after the end: %+v, want %s", r, drain.Idle)
			}
		})
	})

	t.Run("AnswersAtOnceWhileTheLaneIsWatchedHere", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.setAnswer(answerAfter(4*time.Minute, 200))
			w.post("a", "x")
			longLease := func(c *drain.Config) { c.Lease = time.Minute }
			a, b := w.start(longLease), w.start(longLease)
			a.Look(t.Context(), 0)
			b.Look(t.Context(), 0)

			// b looks less often now, and not at this moment
			time.Sleep(3*time.Minute + 150*time.Millisecond)
			asked := time.Now()
			if r := b.Look(t.Context(), 0); r.State != drain.Busy || time.Since(asked) != 0 {
				t.Errorf("%+v after %s, want %s at once", r, time.Since(asked), drain.Busy)
			}
		})
	})

	t.Run("SeesMessagesFiledBeforeIt", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			for i := range 20 {
				if r := p.Look(t.Context(), 0); r.State != drain.Idle {
					t.Fatalf("look %d at nothing: %+v, want %s", i, r, drain.Idle)
				}

				w.post("a", "x")
				if r := p.Look(t.Context(), 0); r.State != drain.Working {
					t.Fatalf("look %d at a message: %+v, want %s", i, r, drain.Working)
				}

				p.Join(t.Context(), 0)
			}
		})
	})

	t.Run("MakesTheHolderLookForMessagesFiledElsewhere", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.post("a", "x")
			p := w.start()
			p.Look(t.Context(), 0)

			// the holder waits, and reads the control rows each half second
			time.Sleep(400 * time.Millisecond)
			w.post("b", "y")
			p.Look(t.Context(), 0)
			time.Sleep(30 * time.Millisecond)
			if got := len(w.cms.listRequests()); got != 2 {
				t.Errorf("%d requests, want the second at once", got)
			}
		})
	})
}

// A holder must read the operators' pauses before it sends a message. If the read fails, the holder
// waits for a while before the next read.
func TestDrainer_PacesItsLooksWhileStorageRefuses(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(2*time.Second, 200))
		p := w.start()
		w.post("a", "1")
		w.post("b", "2")
		p.Wake(0)
		time.Sleep(time.Second)
		reads := 0
		p.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Range" {
				return storagetest.Fault{}
			}

			if reads++; reads > 100 {
				// Virtual time stands still while a holder reads without waits. If such reads
				// failed forever, the test would never end.
				return storagetest.Fault{}
			}

			return storagetest.Fault{Kind: storagetest.FailBefore}
		})

		// the CMS has message 1; message 2 waits for a read of the pauses
		time.Sleep(3 * time.Second)
		p.faults.Set(nil)
		w.waitUntilEmpty(time.Minute)

		if reads == 0 || reads > 30 {
			t.Errorf("%d reads in two seconds in which each failed, want about one each 200 ms",
				reads)
		}
	})
}
