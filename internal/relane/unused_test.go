package relane_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// takeNumber does what a process does at its start whose settings have n lanes.
func (w *world) takeNumber(n int, faults *storagetest.Faults) error {
	store := w.newStore(n)
	err := store.Open(w.t.Context())
	if !errors.Is(err, lane.ErrLaneCount) {
		return err
	}
	return w.newResharder(faults).TakeLanes(w.t.Context(), epochs.Epoch{Lanes: n})
}

func TestTakeLanes_OfUnusedStorage(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startHandler(1).closeDrainer(t)
		for _, n := range []int{3, 8, 1, 2} {
			if err := w.takeNumber(n, storagetest.NewFaults()); err != nil {
				t.Fatalf("TakeLanes(%d) = %v, want no error", n, err)
			}
			if m := w.readRecord(); m.Open.Lanes != n || m.Step != epochs.StepNone {
				t.Fatalf("got the record %+v, want %d lanes", m, n)
			}
		}

		h := w.startHandler(2)
		w.waitForStage(h, w.post(h, "k1", "x"), weir.Delivered)
		w.checkPromises(h, 0)
		h.closeDrainer(t)
	})
}

// Anything that is stored refuses the change, and the number stays.
func TestTakeLanes_OfUsedStorage(t *testing.T) {
	insert := func(partition, key string) func(*testing.T, *world, *handler) {
		return func(t *testing.T, w *world, _ *handler) {
			if _, err := w.account.Table().Transact(t.Context(), partition,
				[]storage.Op{{Kind: storage.Insert, Key: key, Values: map[string]any{}}}); err !=
				nil {
				t.Fatal(err)
			}
		}
	}
	for name, use := range map[string]func(*testing.T, *world, *handler){
		"Message": func(t *testing.T, w *world, h *handler) {
			w.waitForStage(h, w.post(h, "k1", "x"), weir.Delivered)
		},
		"MessageBeforeAChange": func(t *testing.T, w *world, h *handler) {
			w.waitForStage(h, w.post(h, "k1", "x"), weir.Delivered)
			w.changeLanes(5)
			w.changeLanes(2)
		},
		"Pause": func(t *testing.T, w *world, h *handler) {
			if err := h.store.Pauses().Pause(t.Context(), weir.Pause{Lane: 1, Reason: "fire"}); err != nil {
				t.Fatal(err)
			}
		},
		"Schedule":       insert("schedules", "nightly"),
		"Batch":          insert("batches", "b"),
		"BulkReplay":     insert("replays", "r"),
		"OpenBulkReplay": insert("1.0", "!replay_1"),
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				h := w.startHandler(2)
				use(t, w, h)
				h.closeDrainer(t)
				before := w.readRecord()
				if err := w.takeNumber(3, storagetest.NewFaults()); err == nil {
					t.Error("TakeLanes of used storage = no error, want one")
				}

				if m := w.readRecord(); m.Open != before.Open || m.Step != epochs.StepNone {
					t.Errorf("got the record %+v, want it as before: %+v", m, before)
				}
			})
		})
	}
}

// A message is appended after the first check, and before all heads are sealed. The change is
// undone, and the message is delivered.
func TestTakeLanes_AMessageComesMeanwhile(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		faults := storagetest.NewFaults()
		var posted *sent
		faults.Once(func(c storagetest.Call) bool {
			isSeal := c.Op == "Transact" && c.Ops[0].Key == "!head" &&
				c.Ops[0].Values["Sealed"] == true
			if isSeal && posted == nil {
				posted = w.post(h, "k1", "x")
			}
			return isSeal
		}, storagetest.Fault{})

		err := w.newResharder(faults).TakeLanes(t.Context(), epochs.Epoch{Lanes: 3})
		if !errors.Is(err, relane.ErrUsed) {
			t.Errorf("got %v, want %v", err, relane.ErrUsed)
		}

		if m := w.readRecord(); m.Open.Lanes != 2 || m.Step != epochs.StepNone {
			t.Errorf("got the record %+v, want 2 lanes, and no change under way", m)
		}

		w.waitForStage(h, posted, weir.Delivered)
		w.waitForStage(h, w.post(h, "k1", "y"), weir.Delivered)
		w.checkPromises(h, 0)
		h.closeDrainer(t)
	})
}

// Two instances with different numbers start at the same time, while a third serves with another
// number. Whatever happens, the lanes in force are whole, and a message that was accepted meanwhile
// is delivered.
func TestTakeLanes_TwoAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.startHandler(1).closeDrainer(t)
				var both sync.WaitGroup
				errs := make([]error, 2)
				for i := range errs {
					faults, chance := storagetest.NewFaults(),
						rand.New(rand.NewPCG(seed, uint64(i)))
					faults.Set(func(c storagetest.Call) storagetest.Fault {
						if c.Port == "leases" || chance.IntN(3) > 0 {
							return storagetest.Fault{}
						}
						return storagetest.Fault{
							Kind: []storagetest.FaultKind{storagetest.FailBefore,
								storagetest.FailAfter, storagetest.Late}[chance.IntN(3)],
							Delay: 700 * time.Millisecond}
					})

					start := time.Duration(chance.IntN(4000)) * time.Millisecond
					both.Go(func() {
						time.Sleep(start)
						errs[i] = w.takeNumber(2+i, faults)
					})
				}

				both.Wait()
				m := w.readRecord()
				if m.Step != epochs.StepNone || m.Open.Lanes < 2 {
					t.Fatalf("got the record %+v after %v, want 2 or 3 lanes, and no change under way", m, errs)
				}

				h := w.startHandler(m.Open.Lanes)
				for i := range 6 {
					w.waitForStage(h, w.post(h, fmt.Sprint("k", i), "x"), weir.Delivered)
				}

				w.checkPromises(h, 0)
				h.closeDrainer(t)
			})
		})
	}
}

// The process crashes at each of its writes. The next start with the same number continues the
// change. A start with another number does not end it.
func TestTakeLanes_CrashesAtEveryWrite(t *testing.T) {
	for name, fault := range map[string]storagetest.Fault{
		"Before": {Kind: storagetest.FailBefore},
		"After":  {Kind: storagetest.FailAfter},
		"Late":   {Kind: storagetest.Late, Delay: 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashes := 0
			for at, killed := 1, true; killed && !t.Failed(); at++ {
				synctest.Test(t, func(t *testing.T) {
					w := &world{t: t, account: memory.New(time.Now), cms: &cms{}, crashed: true}
					w.startHandler(1).closeDrainer(t)
					killed = w.killedStart(at, fault, 3)
					if err := w.takeNumber(3, storagetest.NewFaults()); err != nil {
						t.Fatalf("the next start = %v, want no error", err)
					}

					// a late write of the killed process has arrived by then
					time.Sleep(30 * time.Second)
					h := w.startHandler(3)
					w.waitForStage(h, w.post(h, "k1", "x"), weir.Delivered)
					w.checkPromises(h, 0)
					h.closeDrainer(t)
				})

				if t.Failed() {
					t.Logf("killed at write %d", at)
				}

				crashes = at
			}

			if crashes < 8 && !t.Failed() {
				t.Errorf("%d writes were tried, want at least 8", crashes)
			}
		})
	}
}
