package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// commitDeliveries commits deliveries of messages at their first attempt, together with a new
// cursor.
func (b *bench) commitDeliveries(w *lane.Writer, cursor int64, seqs ...int64) {
	b.t.Helper()
	tx := &lane.Transaction{}
	for _, seq := range seqs {
		e, err := b.faultless.ReadMessage(b.t.Context(), 0, seq)
		if err != nil {
			b.t.Fatal(err)
		}

		e.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200 + int(seq),
			StartedAt: time.Now(), Duration: time.Millisecond, Body: "done"}, 7, true)
		ch := &lane.Change{}
		if err := ch.Finish(e, weir.Delivered, time.Now().UTC()); err != nil {
			b.t.Fatal(err)
		}

		ch.UpdateTail(func(t *lane.Tail) { t.Cursor = cursor })
		if !tx.TryAdd(ch) {
			b.t.Fatal("TryAdd = false, want room in the tx")
		}
	}

	if err := w.Commit(b.t.Context(), tx); err != nil {
		b.t.Fatal(err)
	}
}

// appendAndRaiseFence appends n messages of one key, and raises the fence as a new holder does.
func (b *bench) appendAndRaiseFence(n int) ([]weir.ID, *lane.Writer) {
	b.t.Helper()
	a := lane.NewAppender(b.store, quiet)
	var ids []weir.ID
	for i := range n {
		r, err := a.Append(b.t.Context(), newMessage("a", fmt.Sprint(i)), fmt.Sprint("k", i))
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, r.Message.ID)
	}

	w, err := b.faultless.RaiseFence(b.t.Context(), 0, "one", lane.Tail{}, keepTail)
	if err != nil {
		b.t.Fatal(err)
	}

	return ids, w
}

func seqRange(first, last int64) (seqs []int64) {
	for s := first; s <= last; s++ {
		seqs = append(seqs, s)
	}
	return seqs
}

// A commit writes one packed row (d_) if at least eight of its deliveries are below its cursor.
func TestPackedDeliveries_OneRowHasAll(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		ids, w := b.appendAndRaiseFence(40)
		before := len(b.listKeys())
		b.commitDeliveries(w, 11, seqRange(1, 10)...)
		b.commitDeliveries(w, 12, 30, 11) // only 11 is below the cursor: too few for a packed row
		b.commitDeliveries(w, 30, seqRange(12, 29)...)

		if got := len(b.listKeys()) - before; got != 2 || !b.listKeys()["d_"+lane.OrderPos(10)] ||
			!b.listKeys()["d_"+lane.OrderPos(29)] {
			t.Errorf("got %d more rows, want 2: the deliveries up to 10 and up to 29", got)
		}

		for i, id := range ids {
			st, err := b.store.Messages().Status(t.Context(), id)
			want := weir.Delivered
			if i >= 30 {
				want = weir.Queued
			}

			if err != nil || st.Stage != want {
				t.Fatalf("message %d: %s, %v, want Stage %v and no error", id.Seq,
					st.Stage, err, want)
			}

			if want == weir.Delivered && (st.CMSStatus != 200+int(id.Seq) || st.AttemptCount != 1 ||
				len(st.Attempts) != 1 || st.Attempts[0].Fence != 7 || st.FinishedAt.IsZero() ||
				st.Version == "") {
				t.Errorf("message %d: got %+v, want one attempt with fence 7 and its status",
					id.Seq, st)
			}
		}
	})
}

func TestPackedDeliveries_ARepeatIsAnsweredWithItsStage(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		_, w := b.appendAndRaiseFence(10)
		b.commitDeliveries(w, 11, seqRange(1, 10)...)
		r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), newMessage("a", "3"), "k3")
		if err != nil || !r.Duplicate || r.Stage != weir.Delivered {
			t.Errorf("got %+v, %v, want Duplicate true, Stage delivered and no error", r, err)
		}
	})
}

func TestPackedDeliveries_RetentionRemovesThemTogether(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		ids, w := b.appendAndRaiseFence(250)
		b.commitDeliveries(w, 90, seqRange(1, 89)...)

		// retention needs several transactions for these
		b.commitDeliveries(w, 180, seqRange(90, 179)...)
		r := &lane.Retention{Store: b.store, KeepFinal: time.Hour, KeepDead: 2 * time.Hour,
			TimeShare: time.Minute}
		time.Sleep(2 * time.Hour)

		for range 4 {
			if _, err := r.RunLane(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		}

		for key := range b.listKeys() {
			if key[:2] == "d_" {
				t.Errorf("the row %s is left, want no packed row", key)
			}
		}

		if got := b.countIdempotencyKeys(); got != 71 {
			t.Errorf("%d messages stayed, want 71", got)
		}

		if _, err := b.store.Messages().Status(t.Context(), ids[100]); weir.KindOf(err) !=
			weir.NotFound {
			t.Errorf("got %v, want an error of kind NotFound", err)
		}
	})
}

// If the answers of the CMS are too large for one packed row, each delivery is stored in its
// message's own row.
func TestPackedDeliveries_TooLargeAnswersHaveRowsOfTheirOwn(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		ids, w := b.appendAndRaiseFence(60)
		tx := &lane.Transaction{}
		for i, id := range ids {
			e, err := b.faultless.ReadMessage(t.Context(), 0, id.Seq)
			if err != nil {
				t.Fatal(err)
			}

			e.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: 200,
				Body: newNoise(2000, i)}, 1, true)
			ch := &lane.Change{}
			if err := ch.Finish(e, weir.Delivered, time.Now().UTC()); err != nil {
				t.Fatal(err)
			}

			ch.UpdateTail(func(t *lane.Tail) { t.Cursor = 61 })
			if !tx.TryAdd(ch) {
				t.Fatalf("TryAdd(change %d) = false, want room for it", i)
			}
		}

		if err := w.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}

		if st, err := b.store.Messages().Status(t.Context(),
			ids[59]); err != nil || st.Stage != weir.Delivered ||
			st.Attempts[0].Body != newNoise(2000, 59) {
			t.Errorf("got %+v, %v, want delivered, with the answer's body", st, err)
		}
	})
}

// newNoise returns n bytes of text that compression cannot make much shorter.
func newNoise(n, seed int) string {
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
