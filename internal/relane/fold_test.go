package relane_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// changeFold changes the folding of keys, and the settings of new processes.
func (w *world) changeFold(rules fold.Rules) {
	w.t.Helper()
	w.rules = rules
	if err := w.newResharder(storagetest.NewFaults()).Run(w.t.Context(), relane.Target{Fold: &rules}); err != nil {
		w.t.Fatalf("fold %v: %v", rules, err)
	}

	if m := w.readRecord(); m.Open.Fold != rules || m.Open.Lanes != 8 || m.Step != epochs.StepNone {
		w.t.Fatalf("got the record %+v, want 8 lanes with fold %v", m, rules)
	}
}

// The folding is changed as the number of lanes is: scheduled and dead messages, versions and
// remembered ids of all spellings move into the lanes of their folded keys, and back, and each id
// still leads to its message.
func TestRun_ChangesTheFolding(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		spellings := []string{"Café", "cafe", "CAFE\u0301", "Bär", "bar"}
		h := w.startHandler(8)
		dead, due := map[string]*sent{}, map[string]*sent{}
		lanes := map[int]bool{}
		for _, key := range spellings {
			w.waitForStage(h, w.post(h, key, "version 7 of "+key, func(m *weir.Message) {
				m.Supersede, m.Version = true, "7"
			}), weir.Delivered)
			dead[key] = w.post(h, key, "bad "+key)
			w.waitForStage(h, dead[key], weir.Dead)
			due[key] = w.post(h, key, "later "+key,
				func(m *weir.Message) { m.DueAt = time.Now().Add(time.Hour) })
			lanes[h.store.LaneOf(key)] = true
		}

		if len(lanes) < 3 {
			t.Fatalf("the spellings are in the lanes %v, want some different ones", lanes)
		}

		if _, err := h.store.Requests().Erase(t.Context(), dead["Bär"].id); err != nil {
			t.Fatal(err)
		}

		h.closeDrainer(t)

		for _, rules := range []fold.Rules{fold.All, fold.Case, 0, fold.All} {
			w.changeFold(rules)
			h = w.startHandler(8)
			for _, key := range spellings {
				if stage := w.readStage(h, due[key]); stage != weir.Scheduled {
					t.Errorf("fold %v: %q is %s, want scheduled", rules, due[key].body, stage)
				}

				if !w.hasDueRow(h, key) {
					t.Errorf("fold %v: no row of a scheduled message has the hash of %q", rules, key)
				}

				st, err := h.store.Messages().Status(t.Context(), dead[key].id)
				if err != nil || st.Stage != weir.Dead ||
					key != "Bär" && st.Message.ID.Lane != h.store.LaneOf(key) {
					t.Errorf("fold %v: %q: got %+v, %v, want it dead in lane %d", rules,
						dead[key].body, st, err, h.store.LaneOf(key))
				}

				latest, err := h.store.Messages().FindLatestVersion(t.Context(), key, "article")
				if err != nil || latest.Version != "7" {
					t.Errorf("fold %v: the version of %q: got %+v, %v, want 7", rules, key,
						latest, err)
				}

				id, err := h.store.Messages().FindRemembered(t.Context(), key, "article")
				if err != nil || id != "item of "+key {
					t.Errorf("fold %v: the id of %q: got %q, %v, want its own", rules, key, id, err)
				}
			}

			h.closeDrainer(t)
		}

		h = w.startHandler(8)
		w.askAndWake(h, dead["cafe"], "good cafe")
		w.waitForStage(h, dead["cafe"], weir.Delivered)
		time.Sleep(time.Hour)
		for _, key := range spellings {
			w.waitForStage(h, due[key], weir.Delivered)
		}

		h.closeDrainer(t)
	})
}

// hasDueRow reports whether the lane of a key has the row of a scheduled message of the key.
func (w *world) hasDueRow(h *handler, key string) bool {
	w.t.Helper()
	dues, _, err := h.store.DeliveryState().ReadDue(w.t.Context(), h.store.LaneOf(key),
		lane.DueTime{}, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.ContainsFunc(dues,
		func(d lane.DueMessage) bool { return d.KeyHash == h.store.KeyHash(key) })
}

// A command without --fold goes on with the folding of the change that is under way, and one with
// another folding is refused.
func TestRun_AnotherFoldingWhileUnderWay(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(2)
		w.cms.setDown(true)
		w.post(h, "K", "waits")
		rules, other := fold.Case, fold.All
		ctx, interrupt := context.WithTimeout(t.Context(), 20*time.Second)
		defer interrupt()
		change := relane.Target{Lanes: 3, Fold: &rules}
		err := w.newResharder(storagetest.NewFaults()).Run(ctx, change)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("interrupted: %v, want %v", err, context.DeadlineExceeded)
		}

		for _, target := range []relane.Target{{Lanes: 2}, {Fold: &other},
			{Lanes: 3, Fold: &other}} {
			err := w.newResharder(storagetest.NewFaults()).Run(t.Context(), target)
			if !errors.Is(err, relane.ErrUnderWay) ||
				!strings.Contains(err.Error(), "3 with fold: [case]") {
				t.Errorf("%+v: got %v, want %v that names 3 lanes with fold: [case]", target, err,
					relane.ErrUnderWay)
			}
		}

		w.cms.setDown(false)
		w.changeLanes(3)
		if m := w.readRecord(); m.Open.Lanes != 3 || m.Open.Fold != rules {
			t.Errorf("got %+v, want 3 lanes with fold: [case]", m.Open)
		}

		h.closeDrainer(t)
		w.changeLanes(4) // the folding stays
		if m := w.readRecord(); m.Open.Lanes != 4 || m.Open.Fold != rules {
			t.Errorf("got %+v, want 4 lanes with fold: [case]", m.Open)
		}
	})
}

// Unused storage takes the folding of the settings without a question, and used storage does not.
func TestTakeLanes_TheFolding(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.startHandler(2).closeDrainer(t)
		for _, rules := range []fold.Rules{fold.Case, fold.All, 0, fold.NFC} {
			w.rules = rules
			store := w.newStore(2)
			if err := store.Open(t.Context()); !errors.Is(err, lane.ErrFold) {
				t.Fatalf("fold %v: Open = %v, want %v", rules, err, lane.ErrFold)
			}

			if err := w.newResharder(storagetest.NewFaults()).TakeLanes(t.Context(), store.Present()); err != nil {
				t.Fatalf("fold %v: TakeLanes = %v, want no error", rules, err)
			}

			if err := store.Open(t.Context()); err != nil {
				t.Fatalf("fold %v: Open = %v, want no error", rules, err)
			}
		}

		h := w.startHandler(2)
		w.waitForStage(h, w.post(h, "k", "x"), weir.Delivered)
		h.closeDrainer(t)
		w.rules = fold.Case
		err := w.newResharder(storagetest.NewFaults()).TakeLanes(t.Context(),
			w.newStore(2).Present())
		if m := w.readRecord(); !errors.Is(err, relane.ErrUsed) || m.Open.Fold != fold.NFC {
			t.Errorf("used: got %v and %+v, want %v and fold: [nfc]", err, m.Open, relane.ErrUsed)
		}
	})
}
