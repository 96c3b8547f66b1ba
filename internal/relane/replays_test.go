package relane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// TestRun_RefusedWhileReplaysAreUnderWay: neither before the change is begun, nor where the
// replay began at the same moment.
func TestRun_RefusedWhileReplaysAreUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(2)
		file := func(id string) {
			t.Helper()
			if _, err := h.store.CreateReplayJob(t.Context(), lane.ReplayJob{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		file("one")
		if err := w.command(storagetest.NewFaults()).Run(t.Context(), 3); !errors.Is(err, relane.ErrReplays) ||
			!strings.Contains(err.Error(), "cancel") {
			t.Errorf("with one under way: %v", err)
		}
		if m := w.meta(); m.Step != lane.StepNone {
			t.Errorf("begun: %+v", m)
		}
		w.change(2) // to the number there is
		if err := h.store.RemoveReplayJob(t.Context(), "one"); err != nil {
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
		if err := w.command(slips).Run(t.Context(), 3); !errors.Is(err, relane.ErrReplays) ||
			!strings.Contains(err.Error(), "--undo") {
			t.Errorf("with one that slipped in: %v", err)
		}
		if _, err := h.store.CreateReplayJob(t.Context(), lane.ReplayJob{ID: "three"}); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("another, in a sealed lane: %v", err)
		}
		if err := h.store.RemoveReplayJob(t.Context(), "two"); err != nil {
			t.Fatal(err)
		}
		w.change(3)
		h.stop(t)
		h = w.start(3)
		time.Sleep(time.Second)
		h.stop(t)
	})
}
