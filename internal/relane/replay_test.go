package relane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

func (w *world) askAndWake(h *handler, s *sent, edited string) {
	w.t.Helper()
	h.drainer.Wake(w.askReplay(h, s, edited))
}

// askReplay requests a replay with the edited body, or with the present body if edited is empty. It
// returns the message's lane.
func (w *world) askReplay(h *handler, s *sent, edited string) int {
	w.t.Helper()
	o := lane.ReplayOptions{}
	if edited != "" {
		o.Edit = &lane.Edit{Body: []byte(edited), ContentType: "text/xml"}
	}

	st, err := h.store.Requests().Replay(w.t.Context(), s.id, o)
	if err != nil {
		w.t.Fatalf("replay of %q: %v", s.body, err)
	}

	return st.Message.ID.Lane
}

func (w *world) checkReplayRefused(h *handler, s *sent, because string) {
	w.t.Helper()
	_, err := h.store.Requests().Replay(w.t.Context(), s.id, lane.ReplayOptions{})
	if weir.KindOf(err) != weir.Conflict || !strings.Contains(err.Error(), because) {
		w.t.Errorf("replay of %q: %v, want a conflict that says %q", s.body, err, because)
	}
}

// TestRun_DeadCanBeReplayed replays dead messages after two changes of the number of lanes. The
// messages keep their edited bodies, their attempts and their order. A replay is still refused if a
// later message of the key was delivered.
func TestRun_DeadCanBeReplayed(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(3)
		late := w.post(h, "k1", "bad 1")
		behind := w.post(h, "k1", "good 2")
		edited := w.post(h, "k2", "bad 3")
		scheduled := w.post(h, "k3", "bad due",
			func(m *weir.Message) { m.DueAt = time.Now().Add(10 * time.Second) })
		log := w.post(h, "k3", "bad log")
		for _, s := range []*sent{late, edited, scheduled, log} {
			w.waitForStage(h, s, weir.Dead)
		}

		w.waitForStage(h, behind, weir.Delivered)
		w.askAndWake(h, edited, "bad still")
		time.Sleep(time.Second)
		h.closeDrainer(t)
		w.changeLanes(5)
		w.changeLanes(2)
		h = w.startHandler(2)
		w.checkReplayRefused(h, late, behind.id.String())

		if m, err := h.store.Messages().LoadEditedMessage(t.Context(), edited.id); err != nil ||
			string(m.Body) != "bad still" ||
			m.ContentType != "text/xml" {
			t.Errorf("got %+v, %v, want Body \"bad still\", ContentType text/xml and no error", m,
				err)
		}

		if m, err := h.store.Messages().LoadMessage(t.Context(), edited.id); err != nil ||
			string(m.Body) != "bad 3" ||
			m.ContentType != "application/xml" {
			t.Errorf("got %+v, %v, want Body \"bad 3\", ContentType application/xml and no error",
				m, err)
		}

		w.askAndWake(h, edited, "good now")
		w.waitForStage(h, edited, weir.Delivered)

		// Both requests must be written before the holder reads one. Otherwise the holder could
		// deliver "good due" first, and would then refuse to replay "bad log", which is earlier in
		// the order of their key.
		w.askReplay(h, scheduled, "good due")
		h.drainer.Wake(w.askReplay(h, log, "good log"))
		for _, s := range []*sent{edited, scheduled, log} {
			w.waitForStage(h, s, weir.Delivered)
		}

		st, err := h.store.Messages().Status(t.Context(), edited.id)
		if err != nil || st.Message.Replays != 2 || st.AttemptCount != 3 {
			t.Errorf("got %+v, %v, want Replays 2, AttemptCount 3 and no error", st, err)
		}

		var got []string
		for _, r := range w.cms.listRequests() {
			if r.key == "k3" {
				got = append(got, r.body)
			}
		}

		if !slices.Equal(got, []string{"bad log", "bad due", "good log", "good due"}) {
			t.Errorf("the CMS got %v, want [bad log bad due good log good due]", got)
		}

		w.checkBooks(0)
		h.closeDrainer(t)
	})
}

// TestRun_OrdersDueMessagesWithNewOnes checks a scheduled message that died in the old lane. Its
// position in the old lane must not be compared with positions in the new lane.
func TestRun_OrdersDueMessagesWithNewOnes(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(1)
		for range 5 {
			w.post(h, "k1", "good")
		}

		scheduled := w.post(h, "k1", "bad due",
			func(m *weir.Message) { m.DueAt = time.Now().Add(10 * time.Second) })
		w.waitForStage(h, scheduled, weir.Dead)
		h.closeDrainer(t)
		w.changeLanes(2)
		h = w.startHandler(2)
		list := lists.Reader{Store: h.store}
		if rows, _, err := list.ReadDead(t.Context(), lane.Of("k1", 2), 0, 10); err != nil ||
			len(rows) != 1 ||
			rows[0].OrderPos != lane.OrderPos(1) {
			t.Errorf("the dead: got %+v, %v, want the first message alone", rows, err)
		}

		// The sequence number of newer is less than the old sequence number of scheduled.
		newer := w.post(h, "k1", "good and newer")
		w.waitForStage(h, newer, weir.Delivered)
		w.checkReplayRefused(h, scheduled, newer.id.String())
		h.closeDrainer(t)
	})
}

// TestRun_DeadCanBeDiscarded discards dead messages before and after a change of the number of
// lanes. The counters of all epochs must add up.
func TestRun_DeadCanBeDiscarded(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(3)
		before := w.post(h, "k1", "bad 1")
		after := w.post(h, "k1", "bad 2")
		for _, s := range []*sent{before, after} {
			w.waitForStage(h, s, weir.Dead)
		}

		w.discardAndWait(h, before)
		h.closeDrainer(t)
		w.changeLanes(5)
		h = w.startHandler(5)
		w.waitForStage(h, before, weir.Discarded)
		w.waitForStage(h, after, weir.Dead)
		w.discardAndWait(h, after)
		h.closeDrainer(t)
		w.changeLanes(2)
		h = w.startHandler(2)
		for _, s := range []*sent{before, after} {
			w.waitForStage(h, s, weir.Discarded)
			w.checkReplayRefused(h, s, "discarded")
		}

		w.checkBooks(0)
		h.closeDrainer(t)
	})
}

func (w *world) discardAndWait(h *handler, s *sent) {
	w.t.Helper()
	st, err := h.store.Requests().Discard(w.t.Context(), s.id, "")
	if err != nil {
		w.t.Fatalf("discard of %q: %v", s.body, err)
	}

	h.drainer.Wake(st.Message.ID.Lane)
	w.waitForStage(h, s, weir.Discarded)
}
