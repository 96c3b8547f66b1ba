package relane_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// TestCrash_AtEveryWrite kills the command at its first write, in the next round at its second
// write, and so on. The last write of the killed command fails, or succeeds at once, or succeeds 25
// s later, when another command may be at work. Then another command finishes or undoes the change.
// No message may be lost, stored twice or delivered out of order.
func TestCrash_AtEveryWrite(t *testing.T) {
	for name, fault := range map[string]storagetest.Fault{
		"Before": {Kind: storagetest.FailBefore},
		"After":  {Kind: storagetest.FailAfter},
		"Late":   {Kind: storagetest.Late, Delay: 25 * time.Second},
	} {
		for _, undo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/Undo=%v", name, undo), func(t *testing.T) {
				t.Parallel()
				crashes := 0
				for at, killed := 1, true; killed && !t.Failed(); at++ {
					synctest.Test(t, func(t *testing.T) {
						w := &world{t: t, account: memory.New(time.Now), cms: &cms{}, crashed: true}
						killed = w.crashAt(at, fault, undo)
					})

					if t.Failed() {
						t.Logf("killed at write %d", at)
					}

					crashes = at
				}

				if crashes < 20 && !t.Failed() {
					t.Errorf("%d writes were tried, want at least 20", crashes)
				}
			})
		}
	}
}

// crashAt kills a change at the write with the number "at". Then it finishes or undoes the change,
// and checks the messages. It returns false if the change has fewer writes.
func (w *world) crashAt(at int, fault storagetest.Fault, undo bool) bool {
	h := w.startHandler(2)
	keep := w.postAllKinds(h)
	killed := w.killedCommand(at, fault, 3)
	if killed && undo {
		err := w.newResharder(storagetest.NewFaults()).Undo(w.t.Context())
		if errors.Is(err, relane.ErrTooLate) {
			w.changeLanes(3)
		} else if err != nil {
			w.t.Fatalf("undo: %v", err)
		}

		time.Sleep(30 * time.Second) // a late write of the killed command has arrived by then
		if w.readRecord().Open.Number == 1 {
			w.checkNoCopies()
		}
	} else {
		w.changeLanes(3)
	}

	h.closeDrainer(w.t)

	for _, last := range []int{0, 4} { // 0 = without a further change of the number of lanes
		if last != 0 {
			w.changeLanes(last)
		}

		h = w.startHandler(w.readRecord().Open.Lanes)
		w.post(h, "k1", fmt.Sprint("afterwards ", last))
		old := w.post(h, "k2", fmt.Sprint("version 5, ", last),
			func(m *weir.Message) { m.Supersede, m.Version = true, "5" })
		w.waitForStage(h, old, weir.Superseded)
		time.Sleep(30 * time.Second) // a late write of the killed command has arrived by then

		for _, s := range w.sent {
			if !strings.HasPrefix(s.body, "bad") &&
				!strings.HasPrefix(s.body, "version 5") && !keep[s] {
				w.waitForStage(h, s, weir.Delivered)
			}
		}

		w.checkPromises(h, int64(len(keep)))
		w.checkRemembered("afterwards")

		if last != 0 {
			time.Sleep(farAhead)
			w.checkPromises(h, 0)
		}

		h.closeDrainer(w.t)
	}

	return killed
}

// checkRemembered checks the requests whose body begins with prefix: each of them had the
// remembered id of its key.
func (w *world) checkRemembered(prefix string) {
	w.t.Helper()
	for _, r := range w.cms.listRequests() {
		if want := "item of " + r.key; strings.HasPrefix(r.body, prefix) && r.known != want {
			w.t.Errorf("%q of key %s came with the id %q, want %q", r.body, r.key, r.known, want)
		}
	}
}

// checkNoCopies checks that the lanes of the undone epoch have no copies.
func (w *world) checkNoCopies() {
	w.t.Helper()
	for number := range 3 {
		page, err := w.account.Table().Range(w.t.Context(),
			storage.Query{Partition: fmt.Sprintf("2.%d", number), From: "a"})
		if err != nil || len(page.Rows) > 0 {
			w.t.Errorf("lane %d of the epoch that never opened has %d rows, %v, want none", number,
				len(page.Rows), err)
		}
	}
}

// postAllKinds posts messages, and waits until some are dead, delivered or retrying. The others are
// queued or scheduled. It returns the messages that become due about farAhead from now.
func (w *world) postAllKinds(h *handler) map[*sent]bool {
	keep := map[*sent]bool{}
	w.waitForStage(h, w.post(h, "k1", "bad"), weir.Dead)
	w.waitForStage(h, w.post(h, "k4", "bad"), weir.Dead)
	w.waitForStage(h, w.post(h, "k2", "version 7",
		func(m *weir.Message) { m.Supersede, m.Version = true, "7" }), weir.Delivered)
	later := func(key, body string, after time.Duration) *sent {
		return w.post(h, key, body, func(m *weir.Message) { m.DueAt = time.Now().Add(after) })
	}
	later("k0", "falls due meanwhile", 4*time.Second)

	for i := range 3 { // for k1, the first message is due a minute later than the other two
		keep[later("k1", fmt.Sprint("scheduled ", i), farAhead-time.Duration(min(i, 1))*time.Minute)] = true
		keep[later("k3", fmt.Sprint("scheduled too ", i), farAhead)] = true
	}

	w.waitForStage(h, w.post(h, "k4", "flaky"), weir.Retrying)
	for i := range 5 {
		w.post(h, fmt.Sprint("k", i), fmt.Sprint("waits ", i))
	}

	return keep
}

// farAhead is the time until the due times of messages that stay scheduled during a change.
const farAhead = 2 * time.Hour

// killedCommand runs a change to n lanes, and stops it at the write with the number "at", as
// SIGKILL would. It reports whether the change reached that write.
func (w *world) killedCommand(at int, fault storagetest.Fault, n int) bool {
	return w.killedAt(at, fault, func(ctx context.Context, c relane.Resharder) error {
		return c.Run(ctx, relane.Target{Lanes: n})
	})
}

// killedStart is killedCommand for the start of a process whose settings have n lanes.
func (w *world) killedStart(at int, fault storagetest.Fault, n int) bool {
	return w.killedAt(at, fault, func(ctx context.Context, c relane.Resharder) error {
		return c.TakeLanes(ctx, epochs.Epoch{Lanes: n})
	})
}

func (w *world) killedAt(at int, fault storagetest.Fault,
	run func(context.Context, relane.Resharder) error) bool {
	ctx, kill := context.WithCancel(w.t.Context())
	defer kill()
	faults := storagetest.NewFaults()

	// atomic, because the command's drainer can still write after Run has returned
	var writes atomic.Int64
	faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op != "Transact" && c.Op != "Acquire" && c.Op != "Release" &&
			writes.Load() < int64(at) {
			return storagetest.Fault{}
		}

		switch n := writes.Add(1); {
		case n < int64(at):
			return storagetest.Fault{}
		case n == int64(at):
			kill()
			return fault
		}

		return storagetest.Fault{Kind: storagetest.FailBefore}
	})

	err := run(ctx, w.newResharder(faults))
	if killed := writes.Load() >= int64(at); killed || err == nil {
		return killed
	}

	w.t.Fatalf("change of the number of lanes: %v, want no error", err)

	return false
}

// TestFaults_OfStorage checks that a change succeeds even if a random third of the command's calls
// to storage, except those for leases, fail or take effect late.
func TestFaults_OfStorage(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, account: memory.New(time.Now), cms: &cms{}, crashed: true}
			h := w.startHandler(3)
			keep := w.postAllKinds(h)
			faults, chance := storagetest.NewFaults(), rand.New(rand.NewPCG(seed, 1))
			kinds := []storagetest.FaultKind{storagetest.FailBefore, storagetest.FailAfter,
				storagetest.Late}
			faults.Set(func(c storagetest.Call) storagetest.Fault {
				if c.Port == "leases" || chance.IntN(3) > 0 {
					return storagetest.Fault{}
				}
				return storagetest.Fault{Kind: kinds[chance.IntN(3)],
					Delay: time.Duration(chance.IntN(3000)) * time.Millisecond}
			})

			if err := w.newResharder(faults).Run(t.Context(), relane.Target{Lanes: 5}); err != nil {
				t.Fatalf("seed %d: Run = %v, want no error", seed, err)
			}

			h.closeDrainer(t)
			faults.Wait()
			h = w.startHandler(5)
			time.Sleep(time.Minute)
			w.checkPromises(h, int64(len(keep)))
			time.Sleep(farAhead)
			w.checkPromises(h, 0)
			h.closeDrainer(t)
		})
	}
}
