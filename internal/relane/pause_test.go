package relane_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestRun_RefusesWhileSomethingIsPaused(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(3)
		key := "k1"
		of := lane.Of(key, 3)
		for _, p := range []weir.Pause{{Lane: 2, Reason: "fire"},
			{Lane: of, Key: key, Reason: "odd"}} {
			if err := h.store.Pauses().Pause(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}

		err := w.newResharder(storagetest.NewFaults()).Run(t.Context(), relane.Target{Lanes: 5})
		if !errors.Is(err, relane.ErrPaused) || !strings.Contains(err.Error(), "lane 2 (fire)") ||
			!strings.Contains(err.Error(), `key "k1" (odd)`) {
			t.Errorf(`got %v, want %v with "lane 2 (fire)" and key "k1" (odd)`, err,
				relane.ErrPaused)
		}

		if m := w.readRecord(); m.Step != epochs.StepNone {
			t.Errorf("got %+v, want Step %v", m, epochs.StepNone)
		}

		for number, key := range map[int]string{2: "", of: key} {
			if err := h.store.Pauses().Resume(t.Context(), number, key); err != nil {
				t.Fatal(err)
			}
			h.drainer.Wake(number)
		}

		w.changeLanes(5)
		h.closeDrainer(t)
	})
}

// Messages of a missing contract would keep the lanes from running empty until they are dead.
func TestRun_RefusesWhileAContractIsMissing(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		h.store.Contracts = lane.NewContracts(map[string][]string{"other": nil})
		w.post(h, "k1", "x")
		h.drainer.Wake(lane.Of("k1", 2))
		time.Sleep(time.Minute)
		resharder := w.newResharder(storagetest.NewFaults())
		resharder.Store.Contracts = h.store.Contracts
		err := resharder.Run(t.Context(), relane.Target{Lanes: 3})
		if !errors.Is(err, relane.ErrContractMissing) ||
			!strings.Contains(err.Error(), "(messages: 1)") {
			t.Errorf("got %v, want %v with the number of messages", err, relane.ErrContractMissing)
		}

		if m := w.readRecord(); m.Step != epochs.StepNone {
			t.Errorf("got %+v, want Step %v", m, epochs.StepNone)
		}

		w.changeLanes(3) // with the contract
		h.closeDrainer(t)
	})
}

// An operator pauses a lane just before the command seals the lane (stops all appends to it). A
// message waits in the lane, so the change waits until the operator ends the pause.
func TestRun_PausedJustBeforeTheSeal(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		faults, number := storagetest.NewFaults(), lane.Of("k1", 2)
		faults.Once(func(c storagetest.Call) bool {
			return c.Op == "Transact" && c.Ops[0].Key == "!head" &&
				c.Ops[0].Values["Sealed"] == true && func() bool {
				if err := h.store.Pauses().Pause(t.Context(), weir.Pause{Lane: number, Reason: "fire"}); err != nil {
					t.Error(err)
				}
				return true
			}()
		}, storagetest.Fault{})

		synctest.Wait()         // until h's drainer has found no work in its lanes
		h.appends.OnFiled = nil // so that no drainer delivers the message before the change begins
		w.post(h, "k1", "waits")
		done := make(chan error, 1)
		go func() { done <- w.newResharder(faults).Run(t.Context(), relane.Target{Lanes: 5}) }()
		time.Sleep(time.Minute)

		if m := w.readRecord(); m.Step != epochs.StepDrain ||
			!strings.Contains(w.joinReports(), "is paused (fire): resume it") {
			t.Errorf("%+v, reported %s, want Step %v and \"is paused (fire): resume it\"", m,
				w.joinReports(), epochs.StepDrain)
		}

		if err := h.store.Pauses().Resume(t.Context(), number, ""); err != nil {
			t.Fatal(err)
		}

		if err := <-done; err != nil {
			t.Error(err)
		}

		h.closeDrainer(t)
	})
}

// An operator pauses an empty lane, or one of its keys, just before the command seals the lane. The
// change waits until the operator ends the pause, because the new lanes would not have the pause.
func TestRun_PausedJustBeforeTheSealOfAnEmptyLane(t *testing.T) {
	for name, key := range map[string]string{"Lane": "", "Key": "k1"} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				h := w.startHandler(2)
				faults, number := storagetest.NewFaults(), lane.Of("k1", 2)
				faults.Once(func(c storagetest.Call) bool {
					if c.Op != "Transact" || c.Ops[0].Key != "!head" ||
						c.Ops[0].Values["Sealed"] != true {
						return false
					}

					if err := h.store.Pauses().Pause(t.Context(),
						weir.Pause{Lane: number, Key: key, Reason: "fire"}); err != nil {
						t.Error(err)
					}

					return true
				}, storagetest.Fault{})

				done := make(chan error, 1)
				go func() { done <- w.newResharder(faults).Run(t.Context(), relane.Target{Lanes: 5}) }()
				time.Sleep(time.Minute)

				if m := w.readRecord(); m.Step != epochs.StepDrain ||
					!strings.Contains(w.joinReports(), "is paused (fire): resume it") {
					t.Errorf("%+v, reported %s, want Step %v and \"is paused (fire): resume it\"",
						m, w.joinReports(), epochs.StepDrain)
				}

				if err := h.store.Pauses().Resume(t.Context(), number, key); err != nil {
					t.Fatal(err)
				}

				if err := <-done; err != nil {
					t.Error(err)
				}

				h.closeDrainer(t)
			})
		})
	}
}
