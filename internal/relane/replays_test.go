package relane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/lane/epochs"
	"weir/internal/lane/jobrow"
	"weir/internal/relane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// Run returns ErrReplays if a bulk replay runs before the change begins, or starts just before lane
// 0 is sealed.
func TestRun_RefusedWhileReplaysAreUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		file := func(id string) {
			t.Helper()
			if _, err := jobrow.Create(t.Context(), h.store, jobrow.Row{ID: id}); err != nil {
				t.Fatal(err)
			}
		}

		file("one")
		err := w.newResharder(storagetest.NewFaults()).Run(t.Context(), relane.Target{Lanes: 3})
		if !errors.Is(err, relane.ErrReplays) ||
			!strings.Contains(err.Error(), "cancel") {
			t.Errorf("with one under way: %v, want %v with \"cancel\"", err, relane.ErrReplays)
		}

		if m := w.readRecord(); m.Step != epochs.StepNone {
			t.Errorf("begun: %+v, want Step %v", m, epochs.StepNone)
		}

		w.changeLanes(2) // allowed, because 2 is the present number
		if err := jobrow.Remove(t.Context(), h.store, "one"); err != nil {
			t.Fatal(err)
		}

		slips := storagetest.NewFaults()
		slips.Once(func(c storagetest.Call) bool {
			if c.Op != "Transact" || c.Partition != "1.0" {
				return false
			}
			file("two") // just before lane 0 is sealed
			return true
		}, storagetest.Fault{Kind: storagetest.FailBefore})

		if err := w.newResharder(slips).Run(t.Context(), relane.Target{Lanes: 3}); !errors.Is(err, relane.ErrReplays) ||
			!strings.Contains(err.Error(), "--undo") {
			t.Errorf("with one that slipped in: %v, want %v with \"--undo\"", err,
				relane.ErrReplays)
		}

		if _, err := jobrow.Create(t.Context(), h.store,
			jobrow.Row{ID: "three"}); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("another, in a sealed lane: %v, want an error of kind Unavailable", err)
		}

		if err := jobrow.Remove(t.Context(), h.store, "two"); err != nil {
			t.Fatal(err)
		}

		w.changeLanes(3)
		h.closeDrainer(t)
		h = w.startHandler(3)
		time.Sleep(time.Second)
		h.closeDrainer(t)
	})
}
