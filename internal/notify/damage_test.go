package notify_test

import (
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Rows of the outbox are damaged. The events behind them are sent, and the outbox counts as empty.
func TestSender_PassesOverDamagedRows(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		reported := 0
		p := w.startSender(func(c *notify.Config) {
			c.Store.Damages = &lane.Damages{OnFound: func() { reported++ }}
		})
		var ops []storage.Op
		for _, key := range []string{"n_!junk", "n_000000000000000000_event",
			"n_junk_event_callback"} {
			ops = append(ops, storage.Op{Kind: storage.Insert, Key: key, Values: map[string]any{}})
		}

		if _, err := w.account.Table().Transact(t.Context(), w.store.Partition(0), ops); err !=
			nil {
			t.Fatal(err)
		}

		w.commitFinal(weir.Delivered, w.appendMessage("https://hooks.example.com/a"))
		passTime(time.Minute)
		if got := w.receiver.listEvents(); len(got) != 1 {
			t.Errorf("the receiver has got %d events, want 1", len(got))
		}

		if n, hasMarker := w.countRows(); n != len(ops) || hasMarker {
			t.Errorf("the outbox has %d rows, marker %v; want the %d damaged ones and no marker", n,
				hasMarker, len(ops))
		}

		if reported == 0 || reported > len(ops) {
			t.Errorf("%d damaged rows were reported, want each that was read once", reported)
		}

		p.Close(t.Context())
	})
}
