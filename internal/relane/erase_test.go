package relane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// countRowsNaming searches all lanes of the epochs from 1 to the parameter "epoch". It returns the
// number of rows, other than tails, that contain a text.
func (w *world) countRowsNaming(text string, epoch int) (n int) {
	w.t.Helper()
	for e := 1; e <= epoch; e++ {
		for number := range 8 {
			page, err := w.account.Table().Range(w.t.Context(),
				storage.Query{Partition: fmt.Sprintf("%d.%d", e, number)})
			if err != nil {
				w.t.Fatal(err)
			}

			for _, row := range page.Rows {
				delete(row.Values, "Remembered") // erasure keeps the remembered id
				if row.Key != "!tail" && strings.Contains(fmt.Sprint(row.Values), text) {
					n++
				}
			}
		}
	}

	return n
}

// A dead message has a row in each epoch. After the message is erased, no row contains its key. The
// message's id still leads to its latest row, even after a further change of the number of lanes.
func TestRun_AnErasedMessageIsErasedInAllEpochs(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		h := w.startHandler(3)
		dead := w.post(h, "jane.doe", "bad 1")
		old := w.post(h, "john.doe", "good",
			func(m *weir.Message) { m.Supersede, m.Version = true, "7" })
		kept := w.post(h, "k2", "bad 3")
		for _, s := range []*sent{dead, kept} {
			w.waitForStage(h, s, weir.Dead)
		}

		w.waitForStage(h, old, weir.Delivered)
		h.closeDrainer(t)
		w.changeLanes(5)
		w.changeLanes(2)
		h = w.startHandler(2)
		if n := w.countRowsNaming(".doe", 3); n < 6 {
			t.Fatalf("got %d rows that name the keys, want some in each epoch", n)
		}

		for _, s := range []*sent{dead, old} {
			if st, err := h.store.Requests().Erase(t.Context(), s.id); err != nil ||
				st.ErasedAt.IsZero() {
				t.Fatalf("erase of %q: got %+v, %v, want an ErasedAt and no error", s.body, st, err)
			}
		}

		if n := w.countRowsNaming(".doe", 3); n != 0 {
			t.Errorf("got %d rows that name the keys, want none", n)
		}

		h.closeDrainer(t)
		w.changeLanes(4)
		h = w.startHandler(4)
		st, err := h.store.Messages().Status(t.Context(), dead.id)
		if err != nil || st.Stage != weir.Dead || st.Message.Key != lane.ErasedKey("jane.doe") {
			t.Errorf("got %+v, %v, want the erased dead message", st, err)
		}

		if latest, err := h.store.Messages().FindLatestVersion(t.Context(), "john.doe",
			st.Message.Contract); err != nil ||
			latest.Version != "7" {
			t.Errorf("got %+v, %v, want version 7: a key that was erased still has its version",
				latest, err)
		}

		w.askAndWake(h, kept, "good now")
		w.waitForStage(h, kept, weir.Delivered)
		time.Sleep(time.Second)
		w.checkBooks(0)
		h.closeDrainer(t)
	})
}
