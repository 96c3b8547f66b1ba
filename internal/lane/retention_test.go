package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// commitFinal makes a message final, and moves the cursor past the message.
func (b *bench) commitFinal(w *lane.Writer, seq int64, stage weir.Stage) {
	b.t.Helper()
	e, err := b.faultless.ReadMessage(b.t.Context(), 0, seq)
	if err != nil {
		b.t.Fatal(err)
	}

	ch := &lane.Change{}
	if err := ch.Finish(e, stage, time.Now()); err != nil {
		b.t.Fatal(err)
	}

	ch.UpdateTail(func(t *lane.Tail) { t.Cursor = max(t.Cursor, seq+1) })
	tx := &lane.Transaction{}
	tx.TryAdd(ch)
	if err := w.Commit(b.t.Context(), tx); err != nil {
		b.t.Fatal(err)
	}
}

// commitHeld makes a message held, and moves the cursor past the message.
func (b *bench) commitHeld(w *lane.Writer, seq int64) {
	b.t.Helper()
	e, err := b.faultless.ReadMessage(b.t.Context(), 0, seq)
	if err != nil {
		b.t.Fatal(err)
	}

	ch, tx := &lane.Change{}, &lane.Transaction{}
	ch.Hold(e.BlockID(), e)
	ch.SaveBlock(lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(),
		NextAt: time.Now().Add(time.Hour), HeldCount: 1})
	ch.UpdateTail(func(t *lane.Tail) { t.Cursor = max(t.Cursor, seq+1) })
	tx.TryAdd(ch)
	if err := w.Commit(b.t.Context(), tx); err != nil {
		b.t.Fatal(err)
	}
}

// listKeys returns the keys of the rows in the first page of lane 0.
func (b *bench) listKeys() map[string]bool {
	b.t.Helper()
	page, err := b.account.Table().Range(b.t.Context(), storage.Query{Partition: "1.0"})
	if err != nil {
		b.t.Fatal(err)
	}

	keys := map[string]bool{}
	for _, r := range page.Rows {
		keys[r.Key] = true
	}

	return keys
}

func (b *bench) blobInfos() []storage.BlobInfo {
	b.t.Helper()
	page, err := b.account.Blobs().List(b.t.Context(), "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	return page.Infos
}

func (b *bench) countIdempotencyKeys() int {
	n := 0
	for key := range b.listKeys() {
		if key[:2] == "i_" {
			n++
		}
	}
	return n
}

func TestRetention_Run(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.store, quiet)
		w, err := b.faultless.RaiseFence(t.Context(), 0, "one", lane.Tail{}, func(*lane.Tail) {})
		if err != nil {
			t.Fatal(err)
		}

		for i := range 6 {
			if _, err := a.Append(t.Context(), newMessage(fmt.Sprint(i), "x"), "k"); err != nil {
				t.Fatal(err)
			}
		}

		b.commitFinal(w, 1, weir.Delivered)
		b.commitFinal(w, 2, weir.Dead)
		b.commitHeld(w, 3) // message 3 waits for a retry
		b.commitFinal(w, 4, weir.Delivered)
		r := &lane.Retention{Store: b.store, KeepFinal: 7 * 24 * time.Hour,
			KeepDead: 30 * 24 * time.Hour, TimeShare: time.Minute}
		has := func(when string, want map[int]bool) {
			t.Helper()
			if _, err := r.RunLane(t.Context(), 0); err != nil {
				t.Fatal(err)
			}

			keys := b.listKeys()
			for seq, there := range want {
				if keys["m_"+lane.OrderPos(int64(seq))] != there {
					t.Errorf("%s: message %d in storage: %v, want %v", when, seq, !there, there)
				}
			}
		}

		has("at once", map[int]bool{1: true, 2: true, 3: true, 4: true})
		time.Sleep(8 * 24 * time.Hour)
		before := b.countIdempotencyKeys()
		has("after 8 days", map[int]bool{1: false, 2: true, 3: true, 4: false, 5: true, 6: true})
		if gone := before - b.countIdempotencyKeys(); gone != 2 {
			t.Errorf("%d idempotency keys gone with 2 messages, want 2", gone)
		}

		b.commitFinal(w, 3, weir.Delivered)
		time.Sleep(25 * 24 * time.Hour)
		r.RunLane(t.Context(), 0) // begins a new walk
		has("after 33 days", map[int]bool{2: false, 3: false, 5: true, 6: true})

		for key := range b.listKeys() {
			if key[:2] == "x_" {
				t.Errorf("the row %s of a dead message is left, want none", key)
			}
		}
	})
}

func TestStore_Status(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		r, err := lane.NewAppender(b.store, quiet).Append(t.Context(), newMessage("a", "x"), "")
		if err != nil {
			t.Fatal(err)
		}

		id := r.Message.ID
		if st, err := b.store.Messages().Status(t.Context(), id); err != nil ||
			st.Stage != weir.Queued ||
			st.Message.Key != "a" {
			t.Errorf("got %+v %v, want Stage queued, Key a and no error", st, err)
		}

		for _, wrong := range []weir.ID{{}, {Epoch: 2, Seq: id.Seq, Nonce: id.Nonce},
			{Epoch: 1, Lane: 1, Seq: id.Seq, Nonce: id.Nonce},
			{Epoch: 1, Seq: 2, Nonce: id.Nonce},
			{Epoch: 1, Seq: id.Seq, Nonce: "00000000000000000000"}} {
			if _, err := b.store.Messages().Status(t.Context(), wrong); weir.KindOf(err) !=
				weir.NotFound {
				t.Errorf("%+v: got %v, want an error of kind NotFound", wrong, err)
			}
		}
	})
}
