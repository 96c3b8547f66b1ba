package relane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/lane"
	"weir/internal/relane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestRun_UpAndDown(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		lanes, waiting := 3, int64(0)
		for round, n := range []int{8, 2, 1, 5} {
			h := w.start(lanes)
			for i := range 30 {
				w.post(h, fmt.Sprint("k", i%7), fmt.Sprintf("good %d.%d", round, i))
			}
			bad := w.post(h, "k1", fmt.Sprintf("bad %d", round))
			done := make(chan error, 1)
			go func() { done <- w.command(storagetest.NewFaults()).Run(t.Context(), n) }()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			// The process of the epoch that is over still runs, and files nothing.
			_, err := h.appends.Append(t.Context(),
				weir.Message{Contract: "article", Key: "k1", Body: []byte("late")}, "")
			var e *weir.Error
			if !errors.As(err, &e) || e.Kind != weir.Unavailable || e.RetryAfter == 0 {
				t.Errorf("append to the old epoch: %v", err)
			}
			h.stop(t)
			if err := w.store(lanes).Open(t.Context()); !errors.Is(err, lane.ErrLaneCount) {
				t.Errorf("start with the old setting: %v", err)
			}
			lanes = n
			h = w.start(lanes)
			w.comes(h, bad, weir.Dead)
			for _, s := range w.sent {
				if !strings.HasPrefix(s.body, "bad") {
					w.comes(h, s, weir.Delivered)
				}
			}
			w.holds(h, waiting)
			h.stop(t)
		}
	})
}

func TestRun_WrongNumbers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for _, n := range []int{0, -1, lane.MaxLanes + 1} {
			if err := w.command(storagetest.NewFaults()).Run(t.Context(), n); !errors.Is(err, relane.ErrNumber) {
				t.Errorf("%d: got %v, want errors.Is(err, relane.ErrNumber)", n, err)
			}
		}
		w.change(4) // storage was never used: this records the number
		w.change(4)
		if m := w.meta(); m.Open != (lane.Epoch{Number: 1, Lanes: 4}) || m.Used != 1 || len(m.Earlier) != 0 {
			t.Errorf("got %+v, want m.Open == (lane.Epoch{Epoch: 1, Lanes: 4}) && m.Used == 1 && "+
				"len(m.Earlier) == 0", m)
		}
		if err := w.command(storagetest.NewFaults()).Undo(t.Context()); err != nil ||
			!strings.Contains(w.told(), "no change") {
			t.Errorf("undo of nothing: %v %v", err, w.told())
		}
	})
}

func TestRun_WaitsForTheCMSAndCanBeUndone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(3)
		bad := w.post(h, "k1", "bad")
		w.comes(h, bad, weir.Dead)
		w.cms.set(true)
		var held []*sent
		for i := range 6 {
			held = append(held, w.post(h, fmt.Sprint("k", i), fmt.Sprint("waits ", i)))
		}
		first := w.command(storagetest.NewFaults())
		done := make(chan error, 1)
		go func() { done <- first.Run(t.Context(), 5) }()
		time.Sleep(time.Minute)
		if m := w.meta(); m.Step != lane.StepDrain {
			t.Fatalf("got %+v, want m.Step == lane.StepDrain", m)
		}
		if !strings.Contains(w.told(), "--undo") {
			t.Errorf("nobody was told of the CMS: %v", w.told())
		}
		if err := w.command(storagetest.NewFaults()).Undo(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, relane.ErrUndone) {
			t.Errorf("the command that was undone: %v", err)
		}
		w.post(h, "k9", "after")
		w.cms.set(false)
		for _, s := range held {
			w.comes(h, s, weir.Delivered)
		}
		w.change(2) // another one, under a number of its own
		h.stop(t)
		if m := w.meta(); m.Open != (lane.Epoch{Number: 3, Lanes: 2}) || m.Step != lane.StepNone {
			t.Errorf("got %+v, want m.Open == (lane.Epoch{Epoch: 3, Lanes: 2}) && "+
				"m.Step == lane.StepNone", m)
		}
		h = w.start(2)
		w.holds(h, 0)
		h.stop(t)
	})
}

func TestRun_AnotherNumberWhileUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(2)
		w.cms.set(true)
		w.post(h, "k", "waits")
		ctx, interrupt := context.WithTimeout(t.Context(), 20*time.Second)
		defer interrupt()
		if err := w.command(storagetest.NewFaults()).Run(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v", err)
		}
		for _, n := range []int{2, 4} {
			if err := w.command(storagetest.NewFaults()).Run(t.Context(), n); !errors.Is(err, relane.ErrUnderWay) {
				t.Errorf("%d: got %v, want errors.Is(err, relane.ErrUnderWay)", n, err)
			}
		}
		w.cms.set(false)
		w.change(3)
		h.stop(t)
		h = w.start(3)
		w.holds(h, 0)
		h.stop(t)
	})
}

// TestRun_CountsCancelled holds that a pending request is granted before its lane is closed.
func TestRun_CountsCancelled(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(2)
		var later []*sent
		for i := range 3 {
			later = append(later, w.post(h, "k", fmt.Sprint("later ", i),
				func(m *weir.Message) { m.DueAt = time.Now().Add(farAhead) }))
			for j := range 10 { // far apart in the log
				w.comes(h, w.post(h, "k", fmt.Sprint("between ", i, j)), weir.Delivered)
			}
		}
		h.stop(t)
		if _, err := h.store.Cancel(t.Context(), later[0].id); err != nil {
			t.Fatal(err)
		}
		w.change(3)
		h = w.start(3)
		w.holds(h, 2)
		// By their first ids, messages that moved can be cancelled and given another moment.
		if st, err := h.store.Cancel(t.Context(), later[1].id); err != nil || st.Stage != weir.Cancelled {
			t.Errorf("cancel: %+v %v", st, err)
		}
		soon := time.Now().Add(time.Minute)
		if st, err := h.store.Reschedule(t.Context(), later[2].id, soon, ""); err != nil ||
			st.Message.Public() != later[2].id || st.Message.ID == later[2].id {
			t.Errorf("move: %+v %v", st, err)
		}
		later[2].due = soon
		h.drainer.Wake(lane.Of("k", 3))
		w.comes(h, later[2], weir.Delivered)
		w.holds(h, 0)
		h.stop(t)
	})
}

func TestWatch_EndsWithTheEpoch(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(2)
		ended := make(chan error, 1)
		nudge := make(chan struct{}, 1)
		h.appends.OnSealed = func() { nudge <- struct{}{} }
		go func() { ended <- relane.Watch(t.Context(), h.store, nudge) }()
		w.post(h, "k", "x")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("ended early: %v", err)
		default:
		}
		w.change(3)
		changed := time.Now()
		if _, err := h.appends.Append(t.Context(), weir.Message{Key: "k", Body: []byte("y")},
			""); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("append: %v", err)
		}
		if err := <-ended; !errors.Is(err, relane.ErrChanged) || time.Since(changed) > time.Second {
			t.Errorf("%v after %s", err, time.Since(changed))
		}
		h.stop(t)
	})
}

func TestWatch_EndsWhenTheRecordIsAnother(t *testing.T) {
	for name, anew := range map[string]bool{"Removed": false, "BegunAnew": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				h := w.start(2)
				defer h.stop(t)
				ended, nudge := make(chan error, 1), make(chan struct{}, 1)
				go func() { ended <- relane.Watch(t.Context(), h.store, nudge) }()
				if _, err := h.store.Table.Transact(t.Context(), "meta",
					[]storage.Op{{Kind: storage.Delete, Key: "lanes"}}); err != nil {
					t.Fatal(err)
				}
				if anew {
					if err := w.store(2).Open(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				nudge <- struct{}{}
				if err := <-ended; !errors.Is(err, lane.ErrReplaced) {
					t.Errorf("err = %v, want %v", err, lane.ErrReplaced)
				}
			})
		})
	}
}

func TestRetention_ForgetsEpochs(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(2)
		var good, bad []*sent
		for i := range 5 {
			good = append(good, w.post(h, fmt.Sprint("k", i), "good"))
			bad = append(bad, w.post(h, fmt.Sprint("d", i), "bad"))
		}
		w.change(3)
		w.change(1)
		h.stop(t)
		h = w.start(1)
		defer h.stop(t)
		r := &lane.Retention{Store: h.store, KeepFinal: 7 * 24 * time.Hour, KeepDead: 30 * 24 * time.Hour, TimeShare: time.Minute}
		sweep := func(days int) {
			for range days {
				time.Sleep(24 * time.Hour)
				for range 4 {
					if _, err := r.RunLane(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
					if _, err := r.RunEarlierEpochs(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		gone := func(s *sent) bool {
			_, err := h.store.Status(t.Context(), s.id)
			return weir.KindOf(err) == weir.NotFound
		}
		sweep(1)
		w.holds(h, 0)
		sweep(8)
		for i := range good {
			if !gone(good[i]) || gone(bad[i]) {
				t.Errorf("after 9 days: delivered gone %v, dead gone %v", gone(good[i]), gone(bad[i]))
			}
		}
		if n := len(w.meta().Earlier); n != 2 {
			t.Errorf("%d earlier epochs, while old ids of dead messages lead through them", n)
		}
		sweep(26)
		for i := range bad {
			if !gone(bad[i]) {
				t.Errorf("%v is there after 35 days", bad[i].id)
			}
		}
		if m := w.meta(); len(m.Earlier) != 0 {
			t.Errorf("not forgotten: %+v", m)
		}
	})
}
