package drain_test

import (
	"testing"
	"time"

	"weir/internal/drain"
)

func TestDrainer_Look(t *testing.T) {
	t.Parallel()
	t.Run("AnswersAtOnceWhileTheLaneIsDrainedHere", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.set(takes(10*time.Second, 200))
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
			w.settled(time.Minute)
			p.Join(t.Context(), 0)
			if r := p.Look(t.Context(), 0); r.State != drain.Idle {
				t.Errorf("after the end: %+v, want %s", r, drain.Idle)
			}
		})
	})
	t.Run("AnswersAtOnceWhileTheLaneIsWatchedHere", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.cms.set(takes(4*time.Minute, 200))
			w.post("a", "x")
			a, b := w.start(func(c *drain.Config) { c.Lease = time.Minute }), w.start(func(c *drain.Config) { c.Lease = time.Minute })
			a.Look(t.Context(), 0)
			b.Look(t.Context(), 0)
			time.Sleep(3 * time.Minute) // b's pauses have grown
			asked := time.Now()
			if r := b.Look(t.Context(), 0); r.State != drain.Busy || time.Since(asked) != 0 {
				t.Errorf("%+v after %s, want %s at once", r, time.Since(asked), drain.Busy)
			}
		})
	})
	t.Run("SeesWhatWasFiledBeforeIt", func(t *testing.T) {
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
	t.Run("HasTheHolderLookForWhatWasFiledElsewhere", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			w.post("a", "x")
			p := w.start()
			p.Look(t.Context(), 0)
			time.Sleep(400 * time.Millisecond) // it lingers, and looks each half second
			w.post("b", "y")
			p.Look(t.Context(), 0)
			time.Sleep(30 * time.Millisecond)
			if got := len(w.cms.requests()); got != 2 {
				t.Errorf("%d requests, want the second at once", got)
			}
		})
	})
}
