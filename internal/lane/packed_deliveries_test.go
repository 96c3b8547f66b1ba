package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// deliver commits deliveries at the first attempt, with a new cursor.
func (b *bench) deliver(w *lane.Writer, cursor int64, seqs ...int64) {
	b.t.Helper()
	batch := &lane.Batch{}
	for _, seq := range seqs {
		e, err := b.eyes.ReadMessage(b.t.Context(), 0, seq)
		if err != nil {
			b.t.Fatal(err)
		}
		e.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200 + int(seq), StartedAt: time.Now(),
			Duration: time.Millisecond, Body: "done"}, 7, true)
		ch := &lane.Change{}
		if err := ch.Finish(e, weir.Delivered, time.Now().UTC()); err != nil {
			b.t.Fatal(err)
		}
		ch.UpdateTail(func(t *lane.Tail) { t.Cursor = cursor })
		if !batch.TryAdd(ch) {
			b.t.Fatal("the batch is full")
		}
	}
	if err := w.Commit(b.t.Context(), batch); err != nil {
		b.t.Fatal(err)
	}
}

func TestFirsts(t *testing.T) {
	setup := func(t *testing.T, b *bench, n int) ([]weir.ID, *lane.Writer) {
		a := lane.NewAppender(b.store, quiet)
		var ids []weir.ID
		for i := range n {
			r, err := a.Append(t.Context(), message("a", fmt.Sprint(i)), fmt.Sprint("k", i))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, r.Message.ID)
		}
		w, err := b.eyes.RaiseFence(t.Context(), 0, "one", lane.Tail{}, keep)
		if err != nil {
			t.Fatal(err)
		}
		return ids, w
	}
	upTo := func(from, to int64) (seqs []int64) {
		for s := from; s <= to; s++ {
			seqs = append(seqs, s)
		}
		return seqs
	}
	t.Run("OneRowTellsOfAll", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			ids, w := setup(t, b, 40)
			before := len(b.keys())
			b.deliver(w, 11, upTo(1, 10)...)
			b.deliver(w, 12, append([]int64{30}, upTo(11, 11)...)...) // too few for a row, and one above the cursor
			b.deliver(w, 30, upTo(12, 29)...)
			if got := len(b.keys()) - before; got != 2 || !b.keys()["d_"+lane.OrderPos(10)] ||
				!b.keys()["d_"+lane.OrderPos(29)] {
				t.Errorf("%d found more", got)
			}
			for i, id := range ids {
				st, err := b.store.Status(t.Context(), id)
				want := weir.Delivered
				if i >= 30 {
					want = weir.Queued
				}
				if err != nil || st.Stage != want {
					t.Fatalf("message %d: %s, %v", id.Seq, st.Stage, err)
				}
				if want == weir.Delivered && (st.CMSStatus != 200+int(id.Seq) || st.AttemptCount != 1 ||
					len(st.Attempts) != 1 || st.Attempts[0].Fence != 7 || st.FinishedAt.IsZero() || st.Version == "") {
					t.Errorf("message %d: %+v", id.Seq, st)
				}
			}
		})
	})
	t.Run("ARepeatIsAnsweredWithItsStage", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			_, w := setup(t, b, 10)
			b.deliver(w, 11, upTo(1, 10)...)
			r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), message("a", "3"), "k3")
			if err != nil || !r.Duplicate || r.Stage != weir.Delivered {
				t.Errorf("%+v, %v", r, err)
			}
		})
	})
	t.Run("RetentionRemovesThemTogether", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			ids, w := setup(t, b, 250)
			b.deliver(w, 90, upTo(1, 89)...)
			b.deliver(w, 180, upTo(90, 179)...) // across the end of retention's first page
			r := &lane.Retention{Store: b.store, KeepFinal: time.Hour, KeepDead: 2 * time.Hour, TimeShare: time.Minute}
			time.Sleep(2 * time.Hour)
			for range 4 {
				if _, err := r.RunLane(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			for key := range b.keys() {
				if key[:2] == "d_" {
					t.Errorf("%s stayed", key)
				}
			}
			if got := b.idempotencyKeys(); got != 71 {
				t.Errorf("%d messages stayed", got)
			}
			if _, err := b.store.Status(t.Context(), ids[100]); weir.KindOf(err) != weir.NotFound {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("AnswersTooLargeForOneRowGoToTheirOwn", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			ids, w := setup(t, b, 60)
			batch := &lane.Batch{}
			for i, id := range ids {
				e, err := b.eyes.ReadMessage(t.Context(), 0, id.Seq)
				if err != nil {
					t.Fatal(err)
				}
				e.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, Body: noise(2000, i)}, 1, true)
				ch := &lane.Change{}
				if err := ch.Finish(e, weir.Delivered, time.Now().UTC()); err != nil {
					t.Fatal(err)
				}
				ch.UpdateTail(func(t *lane.Tail) { t.Cursor = 61 })
				if !batch.TryAdd(ch) {
					t.Fatal("full")
				}
			}
			if err := w.Commit(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			if st, err := b.store.Status(t.Context(),
				ids[59]); err != nil || st.Stage != weir.Delivered || st.Attempts[0].Body != noise(2000, 59) {
				t.Errorf("%+v, %v", st, err)
			}
		})
	})
}

// noise returns text that hardly compresses.
func noise(n, seed int) string {
	b := make([]byte, n)
	x := uint32(seed + 1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = ' ' + byte(x%90)
	}
	return string(b)
}
