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
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

func TestRun_UpAndDown(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		lanes, waiting := 3, int64(0)
		for round, n := range []int{8, 2, 1, 5} {
			h := w.startHandler(lanes)
			for i := range 30 {
				w.post(h, fmt.Sprint("k", i%7), fmt.Sprintf("good %d.%d", round, i))
			}

			bad := w.post(h, "k1", fmt.Sprintf("bad %d", round))
			done := make(chan error, 1)
			go func() { done <- w.newResharder(storagetest.NewFaults()).Run(t.Context(), relane.Target{Lanes: n}) }()
			if err := <-done; err != nil {
				t.Fatal(err)
			}

			// The process of the former epoch still runs, but accepts no message.
			_, err := h.appends.Append(t.Context(),
				weir.Message{Contract: "article", Key: "k1", Body: []byte("late")}, "")
			var e *weir.Error
			if !errors.As(err, &e) || e.Kind != weir.Unavailable || e.RetryAfter == 0 {
				t.Errorf("append to the old epoch: got %v, want an error of kind Unavailable with RetryAfter", err)
			}

			h.closeDrainer(t)
			if err := w.newStore(lanes).Open(t.Context()); !errors.Is(err, lane.ErrLaneCount) {
				t.Errorf("start with the old setting: %v, want %v", err, lane.ErrLaneCount)
			}

			lanes = n
			h = w.startHandler(lanes)
			w.waitForStage(h, bad, weir.Dead)

			for _, s := range w.sent {
				if !strings.HasPrefix(s.body, "bad") {
					w.waitForStage(h, s, weir.Delivered)
				}
			}

			w.checkPromises(h, waiting)
			h.closeDrainer(t)
		}
	})
}

func TestRun_WrongNumbers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for _, n := range []int{0, -1, epochs.MaxLanes + 1} {
			err := w.newResharder(storagetest.NewFaults()).Run(t.Context(), relane.Target{Lanes: n})
			if !errors.Is(err, relane.ErrNumber) {
				t.Errorf("%d: got %v, want %v", n, err, relane.ErrNumber)
			}
		}

		w.changeLanes(4) // storage is still empty, so Run only records the number of lanes
		w.changeLanes(4)

		if m := w.readRecord(); m.Open != (epochs.Epoch{Number: 1, Lanes: 4}) || m.Used != 1 ||
			len(m.Earlier) != 0 {
			t.Errorf("got %+v, want epoch 1 of 4 lanes open, and no earlier one", m)
		}

		if err := w.newResharder(storagetest.NewFaults()).Undo(t.Context()); err != nil ||
			!strings.Contains(w.joinReports(), "no change") {
			t.Errorf("Undo of no change = %v, reports %v, want no error and \"no change\"", err,
				w.joinReports())
		}
	})
}

func TestRun_WaitsForTheCMSAndCanBeUndone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(3)
		bad := w.post(h, "k1", "bad")
		w.waitForStage(h, bad, weir.Dead)
		w.cms.setDown(true)
		var waiting []*sent
		for i := range 6 {
			waiting = append(waiting, w.post(h, fmt.Sprint("k", i), fmt.Sprint("waits ", i)))
		}

		first := w.newResharder(storagetest.NewFaults())
		done := make(chan error, 1)
		go func() { done <- first.Run(t.Context(), relane.Target{Lanes: 5}) }()
		time.Sleep(time.Minute)
		if m := w.readRecord(); m.Step != epochs.StepDrain {
			t.Fatalf("got %+v, want Step %v", m, epochs.StepDrain)
		}

		if !strings.Contains(w.joinReports(), "--undo") {
			t.Errorf("got the reports %v, want --undo in them while the CMS is away",
				w.joinReports())
		}

		if err := w.newResharder(storagetest.NewFaults()).Undo(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := <-done; !errors.Is(err, relane.ErrUndone) {
			t.Errorf("the command that was undone: %v, want %v", err, relane.ErrUndone)
		}

		w.post(h, "k9", "after")
		w.cms.setDown(false)
		for _, s := range waiting {
			w.waitForStage(h, s, weir.Delivered)
		}

		w.changeLanes(2) // this epoch gets number 3, because the undone change used 2
		h.closeDrainer(t)

		if m := w.readRecord(); m.Open != (epochs.Epoch{Number: 3, Lanes: 2}) ||
			m.Step != epochs.StepNone {
			t.Errorf("got %+v, want epoch 3 of 2 lanes open, and no change under way", m)
		}

		h = w.startHandler(2)
		w.checkPromises(h, 0)
		h.closeDrainer(t)
	})
}

func TestRun_AnotherNumberWhileUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		w.cms.setDown(true)
		w.post(h, "k", "waits")
		ctx, interrupt := context.WithTimeout(t.Context(), 20*time.Second)
		defer interrupt()
		err := w.newResharder(storagetest.NewFaults()).Run(ctx, relane.Target{Lanes: 3})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v, want %v", err, context.DeadlineExceeded)
		}

		for _, n := range []int{2, 4} {
			err := w.newResharder(storagetest.NewFaults()).Run(t.Context(), relane.Target{Lanes: n})
			if !errors.Is(err, relane.ErrUnderWay) {
				t.Errorf("%d: got %v, want %v", n, err, relane.ErrUnderWay)
			}
		}

		w.cms.setDown(false)
		w.changeLanes(3)
		h.closeDrainer(t)
		h = w.startHandler(3)
		w.checkPromises(h, 0)
		h.closeDrainer(t)
	})
}

// A scheduled message is cancelled while no process holds the lane. The command that changes the
// number of lanes must count the cancellation before it closes the lane.
func TestRun_CountsCancellationsFirst(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		var later []*sent
		for i := range 3 {
			later = append(later, w.post(h, "k", fmt.Sprint("later ", i),
				func(m *weir.Message) { m.DueAt = time.Now().Add(farAhead) }))
			for j := range 10 { // so that the scheduled messages are far apart in the log
				w.waitForStage(h, w.post(h, "k", fmt.Sprint("between ", i, j)), weir.Delivered)
			}
		}

		h.closeDrainer(t)
		if _, err := h.store.Requests().Cancel(t.Context(), later[0].id); err != nil {
			t.Fatal(err)
		}

		w.changeLanes(3)
		h = w.startHandler(3)
		w.checkPromises(h, 2)

		// After the change, callers can cancel and reschedule a scheduled message under its first
		// id.
		if st, err := h.store.Requests().Cancel(t.Context(), later[1].id); err != nil ||
			st.Stage != weir.Cancelled {
			t.Errorf("cancel: %+v %v, want Stage cancelled and no error", st, err)
		}

		soon := time.Now().Add(time.Minute)
		if st, err := h.store.Requests().Reschedule(t.Context(), later[2].id, soon, ""); err !=
			nil ||
			st.Message.Public() != later[2].id || st.Message.ID == later[2].id {
			t.Errorf("move: %+v %v, want Public %v, ID another than %v and no error", st, err,
				later[2].id, later[2].id)
		}

		later[2].due = soon
		h.drainer.Wake(lane.Of("k", 3))
		w.waitForStage(h, later[2], weir.Delivered)
		w.checkPromises(h, 0)
		h.closeDrainer(t)
	})
}

func TestWatch_EndsWithTheEpoch(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		ended := make(chan error, 1)
		nudge := make(chan struct{}, 1)
		h.appends.OnSealed = func() { nudge <- struct{}{} }
		go func() { ended <- relane.Watch(t.Context(), h.store, nudge) }()
		w.post(h, "k", "x")
		time.Sleep(10 * time.Second)
		synctest.Wait()

		select {
		case err := <-ended:
			t.Fatalf("Watch ended with %v, want it to go on", err)
		default:
		}

		w.changeLanes(3)
		changed := time.Now()

		if _, err := h.appends.Append(t.Context(), weir.Message{Key: "k", Body: []byte("y")},
			""); weir.KindOf(err) != weir.Unavailable {
			t.Errorf("append: %v, want an error of kind Unavailable", err)
		}

		if err := <-ended; !errors.Is(err, relane.ErrChanged) || time.Since(changed) > time.Second {
			t.Errorf("%v after %s, want %v and at most 1s", err, time.Since(changed),
				relane.ErrChanged)
		}

		h.closeDrainer(t)
	})
}

func TestWatch_EndsWhenTheRecordIsAnother(t *testing.T) {
	for name, anew := range map[string]bool{"Removed": false, "BegunAnew": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				h := w.startHandler(2)
				defer h.closeDrainer(t)
				ended, nudge := make(chan error, 1), make(chan struct{}, 1)
				go func() { ended <- relane.Watch(t.Context(), h.store, nudge) }()

				if _, err := h.store.Table.Transact(t.Context(), "meta",
					[]storage.Op{{Kind: storage.Delete, Key: "lanes"}}); err != nil {
					t.Fatal(err)
				}

				if anew {
					if err := w.newStore(2).Open(t.Context()); err != nil {
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
		h := w.startHandler(2)
		var good, bad []*sent
		for i := range 5 {
			good = append(good, w.post(h, fmt.Sprint("k", i), "good"))
			bad = append(bad, w.post(h, fmt.Sprint("d", i), "bad"))
		}

		w.changeLanes(3)
		w.changeLanes(1)
		h.closeDrainer(t)
		h = w.startHandler(1)
		defer h.closeDrainer(t)
		r := &lane.Retention{Store: h.store, KeepFinal: 7 * 24 * time.Hour,
			KeepDead: 30 * 24 * time.Hour, TimeShare: time.Minute}
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
			_, err := h.store.Messages().Status(t.Context(), s.id)
			return weir.KindOf(err) == weir.NotFound
		}

		sweep(1)
		w.checkPromises(h, 0)
		sweep(8)

		for i := range good {
			if !gone(good[i]) || gone(bad[i]) {
				t.Errorf("after 9 days: delivered gone %v, dead gone %v, want only the delivered",
					gone(good[i]), gone(bad[i]))
			}
		}

		if n := len(w.readRecord().Earlier); n != 2 {
			t.Errorf("%d earlier epochs, want 2: dead messages are found through them by their first ids", n)
		}

		sweep(26)

		for i := range bad {
			if !gone(bad[i]) {
				t.Errorf("%v is there after 35 days, want it removed", bad[i].id)
			}
		}

		if m := w.readRecord(); len(m.Earlier) != 0 {
			t.Errorf("got %+v, want no earlier epoch", m)
		}
	})
}
