package relane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

func (w *world) replay(h *handler, s *sent, edited string) {
	w.t.Helper()
	h.drainer.Wake(w.askReplay(h, s, edited))
}

// askReplay asks for a replay, and returns the lane that is to be looked at for it.
func (w *world) askReplay(h *handler, s *sent, edited string) int {
	w.t.Helper()
	o := lane.ReplayOptions{}
	if edited != "" {
		o.Edit = &lane.Edit{Body: []byte(edited), ContentType: "text/xml"}
	}
	st, err := h.store.Replay(w.t.Context(), s.id, o)
	if err != nil {
		w.t.Fatalf("replay of %q: %v", s.body, err)
	}
	return st.Message.ID.Lane
}

func (w *world) refuses(h *handler, s *sent, because string) {
	w.t.Helper()
	_, err := h.store.Replay(w.t.Context(), s.id, lane.ReplayOptions{})
	if weir.KindOf(err) != weir.Conflict || !strings.Contains(err.Error(), because) {
		w.t.Errorf("replay of %q: %v, want a conflict that says %q", s.body, err, because)
	}
}

// TestRun_DeadCanBeReplayed holds that dead messages keep their history in the next epoch.
func TestRun_DeadCanBeReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(3)
		late := w.post(h, "k1", "bad 1")
		behind := w.post(h, "k1", "good 2")
		edited := w.post(h, "k2", "bad 3")
		scheduled := w.post(h, "k3", "bad due", func(m *weir.Message) { m.DueAt = time.Now().Add(10 * time.Second) })
		log := w.post(h, "k3", "bad log")
		for _, s := range []*sent{late, edited, scheduled, log} {
			w.comes(h, s, weir.Dead)
		}
		w.comes(h, behind, weir.Delivered)
		w.replay(h, edited, "bad still")
		time.Sleep(time.Second)
		h.stop(t)
		w.change(5)
		w.change(2)
		h = w.start(2)
		w.refuses(h, late, behind.id.String())
		if m, err := h.store.LoadEditedMessage(t.Context(), edited.id); err != nil || string(m.Body) != "bad still" ||
			m.ContentType != "text/xml" {
			t.Errorf("got %+v, %v, want err == nil && string(m.Body) == \"bad still\" && "+
				"m.ContentType == \"text/xml\"", m, err)
		}
		if m, err := h.store.LoadMessage(t.Context(), edited.id); err != nil || string(m.Body) != "bad 3" ||
			m.ContentType != "application/xml" {
			t.Errorf("got %+v, %v, want err == nil && string(m.Body) == \"bad 3\" && "+
				"m.ContentType == \"application/xml\"", m, err)
		}
		w.replay(h, edited, "good now")
		w.comes(h, edited, weir.Delivered)
		// Both are asked for before the holder looks: it would refuse the earlier one, once the later
		// one is delivered.
		w.askReplay(h, scheduled, "good due")
		h.drainer.Wake(w.askReplay(h, log, "good log"))
		for _, s := range []*sent{edited, scheduled, log} {
			w.comes(h, s, weir.Delivered)
		}
		if st, err := h.store.Status(t.Context(), edited.id); err != nil || st.Replays != 2 || st.AttemptCount != 3 {
			t.Errorf("got %+v, %v, want err == nil && st.Replays == 2 && st.AttemptCount == 3", st, err)
		}
		var got []string
		for _, r := range w.cms.requests() {
			if r.key == "k3" {
				got = append(got, r.body)
			}
		}
		if !slices.Equal(got, []string{"bad log", "bad due", "good log", "good due"}) {
			t.Errorf("the CMS got %v", got)
		}
		w.books(0)
		h.stop(t)
	})
}

// TestRun_UnknownHistoryStaysUnknown holds that messages that died under an earlier version of the
// program keep their unknown history.
func TestRun_UnknownHistoryStaysUnknown(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(1)
		old := w.post(h, "k1", "bad 1")
		w.comes(h, old, weir.Dead)
		h.stop(t)
		if _, err := w.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "!tail",
				Values: map[string]any{"Watched": int64(0)}}}); err != nil {
			t.Fatal(err)
		}
		w.change(2)
		h = w.start(2)
		w.refuses(h, old, "not known")
		newer := w.post(h, "k1", "bad 2")
		w.comes(h, newer, weir.Dead)
		w.replay(h, newer, "")
		h.stop(t)
	})
}

// TestRun_WhatFellDueIsInOrderWithWhatIsNew holds that the place a message had when it fell
// due, by the numbers of its old lane, is none among those of the new one.
func TestRun_WhatFellDueIsInOrderWithWhatIsNew(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.start(1)
		for range 5 {
			w.post(h, "k1", "good")
		}
		scheduled := w.post(h, "k1", "bad due", func(m *weir.Message) { m.DueAt = time.Now().Add(10 * time.Second) })
		w.comes(h, scheduled, weir.Dead)
		h.stop(t)
		w.change(2)
		h = w.start(2)
		if rows, _, err := h.store.ReadDead(t.Context(), lane.Of("k1", 2), 0, 10); err != nil || len(rows) != 1 ||
			rows[0].OrderPos != lane.OrderPos(1) {
			t.Errorf("the dead: %+v, %v", rows, err)
		}
		newer := w.post(h, "k1", "good and newer") // by its number in front of that place
		w.comes(h, newer, weir.Delivered)
		w.refuses(h, scheduled, newer.id.String())
		h.stop(t)
	})
}
