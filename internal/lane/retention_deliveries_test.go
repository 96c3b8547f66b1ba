package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// commitTracked makes a message delivered, and records it as the last delivery of its key.
func (b *bench) commitTracked(w *lane.Writer, seq int64) {
	b.t.Helper()
	e, err := b.faultless.ReadMessage(b.t.Context(), 0, seq)
	if err != nil {
		b.t.Fatal(err)
	}

	ch := &lane.Change{}
	ch.SaveLastDelivery(e)
	e.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: time.Now()}, 7,
		true)
	if err := ch.Finish(e, weir.Delivered, time.Now().UTC()); err != nil {
		b.t.Fatal(err)
	}

	ch.UpdateTail(func(t *lane.Tail) { t.Cursor = seq + 1 })
	tx := &lane.Transaction{}
	tx.TryAdd(ch)
	if err := w.Commit(b.t.Context(), tx); err != nil {
		b.t.Fatal(err)
	}
}

// countRecords returns the number of records of last deliveries.
func (b *bench) countRecords() (n int) {
	b.t.Helper()
	for key := range b.listKeys() {
		if key[:2] == "l_" {
			n++
		}
	}
	return n
}

// Each day another key has a dead message and a later delivery. The records of last deliveries stay
// as long as a dead message before them, and do not grow without end.
func TestRetention_RemovesLastDeliveries(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const days, keepDead = 100, 30
		a := lane.NewAppender(b.store, quiet)
		w, err := b.faultless.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keepTail)
		if err != nil {
			t.Fatal(err)
		}

		r := b.newRetention(b.store)
		for day := range days {
			for range 2 {
				if _, err := a.Append(t.Context(), newMessage(fmt.Sprint("k", day), "x"), ""); err != nil {
					t.Fatal(err)
				}
			}

			b.commitFinal(w, int64(2*day+1), weir.Dead)
			b.commitTracked(w, int64(2*day+2))
			b.runEach(r, oneDay/4, 4)

			if n := b.countRecords(); n > keepDead+3 || n < min(day+1, keepDead-1) {
				t.Fatalf("after %d days %d records are left, want those of %d days", day+1,
					n, keepDead)
			}
		}

		b.runEach(r, oneDay/4, 4*(keepDead+3))
		if n := b.countRecords(); n != 0 {
			t.Errorf("after the retention of all dead messages %d records are left, want none", n)
		}
	})
}

// A message before the recorded delivery waits again, or a request waits that can lead to that: the
// record stays.
func TestRetention_KeepsLastDeliveries(t *testing.T) {
	const held = "r_00000000000000000000000000000000_"
	for name, row := range map[string]storage.Op{
		"Held": {Kind: storage.Insert, Key: held + lane.OrderPos(1),
			Values: map[string]any{"Seq": int64(1)}},
		"HeldRowIsDamaged": {Kind: storage.Insert, Key: held + lane.OrderPos(3),
			Values: map[string]any{"Seq": int64(1)}},
		"Dead": {Kind: storage.Insert, Key: "x_" + lane.OrderPos(1),
			Values: map[string]any{}},
		"DeadRowIsDamaged": {Kind: storage.Insert, Key: "x_!", Values: map[string]any{}},
		"Request": {Kind: storage.Merge, Key: "!head",
			Values: map[string]any{"Touched": int64(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				_, w := b.appendAndRaiseFence(2)
				b.commitFinal(w, 1, weir.Delivered)
				b.commitTracked(w, 2)
				b.transact(row)
				b.runEach(b.newRetention(b.store), 4*oneDay, 2)
				if n := b.countRecords(); n != 1 {
					t.Errorf("%d records are left, want the one", n)
				}
			})
		})
	}
}
