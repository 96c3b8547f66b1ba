package relane_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestRun_RefusesWhileSomethingIsPaused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(3)
		key := "k1"
		of := lane.Of(key, 3)
		for _, p := range []weir.Pause{{Lane: 2, Reason: "fire"}, {Lane: of, Key: key, Reason: "odd"}} {
			if err := h.store.Pause(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		err := w.command(storagetest.NewFaults()).Run(t.Context(), 5)
		if !errors.Is(err, relane.ErrPaused) || !strings.Contains(err.Error(), "lane 2 (fire)") ||
			!strings.Contains(err.Error(), `key "k1" (odd)`) {
			t.Errorf("got %v, want errors.Is(err, relane.ErrPaused) && "+
				"strings.Contains(err.Error(), \"lane 2 (fire)\") && "+
				"strings.Contains(err.Error(), `key \"k1\" (odd)`)", err)
		}
		if m := w.meta(); m.Step != lane.StepNone {
			t.Errorf("got %+v, want m.Step == lane.StepNone", m)
		}
		for number, key := range map[int]string{2: "", of: key} {
			if err := h.store.Resume(t.Context(), number, key); err != nil {
				t.Fatal(err)
			}
			h.drainer.Wake(number)
		}
		w.change(5)
		h.stop(t)
	})
}

// A pause that comes in just before its lane is sealed keeps the lane from running empty,
// and can be ended all the same.
func TestRun_PausedJustBeforeTheSeal(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(2)
		faults, number := storagetest.NewFaults(), lane.Of("k1", 2)
		faults.Once(func(c storagetest.Call) bool {
			return c.Op == "Transact" && c.Ops[0].Key == "!head" && c.Ops[0].Values["Sealed"] == true && func() bool {
				if err := h.store.Pause(t.Context(), weir.Pause{Lane: number, Reason: "fire"}); err != nil {
					t.Error(err)
				}
				return true
			}()
		}, storagetest.Fault{})
		synctest.Wait()         // its drainer has looked at its lanes
		h.appends.OnFiled = nil // nobody is told, so it still waits when the change begins
		w.post(h, "k1", "waits")
		done := make(chan error, 1)
		go func() { done <- w.command(faults).Run(t.Context(), 5) }()
		time.Sleep(time.Minute)
		if m := w.meta(); m.Step != lane.StepDrain || !strings.Contains(w.told(), "is paused (fire): resume it") {
			t.Errorf("%+v, told %s", m, w.told())
		}
		if err := h.store.Resume(t.Context(), number, ""); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		h.stop(t)
	})
}

// One that slips in where nothing waits is not lost with the epoch: the change waits for it
// to be ended, too.
func TestRun_PausedJustBeforeTheSealOfAnEmptyLane(t *testing.T) {
	for name, key := range map[string]string{"Lane": "", "Key": "k1"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				h := w.start(2)
				faults, number := storagetest.NewFaults(), lane.Of("k1", 2)
				faults.Once(func(c storagetest.Call) bool {
					if c.Op != "Transact" || c.Ops[0].Key != "!head" || c.Ops[0].Values["Sealed"] != true {
						return false
					}
					if err := h.store.Pause(t.Context(),
						weir.Pause{Lane: number, Key: key, Reason: "fire"}); err != nil {
						t.Error(err)
					}
					return true
				}, storagetest.Fault{})
				done := make(chan error, 1)
				go func() { done <- w.command(faults).Run(t.Context(), 5) }()
				time.Sleep(time.Minute)
				if m := w.meta(); m.Step != lane.StepDrain ||
					!strings.Contains(w.told(), "is paused (fire): resume it") {
					t.Errorf("%+v, told %s", m, w.told())
				}
				if err := h.store.Resume(t.Context(), number, key); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				h.stop(t)
			})
		})
	}
}
