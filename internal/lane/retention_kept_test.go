package lane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

const oneDay = 24 * time.Hour

func seqsTo(from, to int64) (seqs []int64) {
	for seq := from; seq <= to; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// The tests in this file show which rows retention keeps, and that retention continues if storage
// refuses a removal.

func (b *bench) newRetention(store *lane.Store) *lane.Retention {
	return &lane.Retention{Store: store, KeepFinal: 7 * oneDay, KeepDead: 30 * oneDay,
		TimeShare: time.Minute, Log: quiet}
}

// runEach runs retention several times, and waits for the time interval before each run.
func (b *bench) runEach(r *lane.Retention, interval time.Duration, times int) {
	b.t.Helper()
	for range times {
		time.Sleep(interval)
		if _, err := r.RunLane(b.t.Context(), 0); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) countRows(prefix string) (n int) {
	for key := range b.listKeys() {
		if strings.HasPrefix(key, prefix) {
			n++
		}
	}
	return n
}

// fileApart appends n messages with different keys. After each append it waits for the duration
// "apart".
func (b *bench) fileApart(n int, apart time.Duration) (ids []weir.ID) {
	b.t.Helper()
	a := lane.NewAppender(b.faultless, quiet)
	for i := range n {
		r, err := a.Append(b.t.Context(), newMessage(fmt.Sprint(i), "x"), fmt.Sprint("k", i))
		if err != nil {
			b.t.Fatal(err)
		}
		ids = append(ids, r.Message.ID)
		time.Sleep(apart)
	}

	return ids
}

// A delivered message has the stage "delivered" until it is removed, at whatever time retention
// runs.
func TestRetention_DeliveredStaysDelivered(t *testing.T) {
	for _, offset := range []time.Duration{0, 45 * time.Millisecond, 95 * time.Millisecond,
		195 * time.Millisecond, time.Second, 1100 * time.Millisecond, 1300 * time.Millisecond} {
		t.Run(offset.String(), func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				began := time.Now()
				ids := b.fileApart(20, 10*time.Millisecond)
				w := b.raiseFence()
				time.Sleep(time.Second)
				b.commitDeliveries(w, 21, seqsTo(1, 20)...)
				r := b.newRetention(b.faultless)
				time.Sleep(time.Until(began.Add(r.KeepFinal + offset)))

				for range 30 {
					b.runEach(r, 0, 1)
					for _, id := range ids {
						st, err := b.faultless.Messages().Status(t.Context(), id)
						if weir.KindOf(err) != weir.NotFound &&
							(err != nil || st.Stage != weir.Delivered) {
							t.Fatalf("message %d is %q, %v; want it delivered, or gone", id.Seq,
								st.Stage, err)
						}
					}

					time.Sleep(time.Hour)
				}

				if m, i, d := b.countRows("m_"), b.countRows("i_"), b.countRows("d_"); m+i+d != 0 {
					t.Errorf("after 30 hours %d messages, %d idempotency keys and %d d_ rows are left, want none", m, i,
						d)
				}
			})
		})
	}
}

// A packed row (d_) has the deliveries of many messages. If storage refuses to remove one of these
// messages, the packed row stays, too.
func TestRetention_APackedMessageThatStays(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		ids := b.fileApart(20, 0)
		w := b.raiseFence()
		b.commitDeliveries(w, 21, seqsTo(1, 20)...)
		b.faults.Set(refuseTransactions(func(op storage.Op) bool { return op.Key == "m_"+lane.OrderPos(5) }))
		r := b.newRetention(b.store)
		b.runEach(r, 8*oneDay, 1)

		if st, err := b.faultless.Messages().Status(t.Context(),
			ids[4]); err != nil || st.Stage != weir.Delivered || b.countRows("m_") != 1 ||
			b.countRows("d_") != 1 {
			t.Errorf("the message that stays is %q (%v); %d messages and %d d_ rows are left, want delivered, 1, 1",
				st.Stage, err, b.countRows("m_"), b.countRows("d_"))
		}

		b.faults.Set(nil)
		b.runEach(r, 25*time.Hour, 1)
		if n := b.countRows("m_") + b.countRows("i_") + b.countRows("d_"); n != 0 {
			t.Errorf("%d rows are left after storage has allowed the removal, want 0", n)
		}
	})
}

// refuseTransactions returns a hook that makes each transaction with a matching deletion fail. As
// in storage, the error has the index of the refused operation.
func refuseTransactions(match func(storage.Op) bool) func(storagetest.Call) storagetest.Fault {
	return func(c storagetest.Call) storagetest.Fault {
		for i, op := range c.Ops {
			if match(op) && op.Kind == storage.Delete {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "table transact", Kind: storage.Other, Index: i,
						Err: errors.New("refused for good")}}
			}
		}

		return storagetest.Fault{}
	}
}

// Two processes can remove the last two messages of a packed row (d_) at the same time, one message
// each. Then the packed row stays, and the next pass of retention over the log removes the packed
// row.
func TestRetention_APackedRowWithoutMessages(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(20, 0)
		b.commitDeliveries(b.raiseFence(), 21, seqsTo(1, 20)...)

		for seq := int64(1); seq <= 20; seq++ {
			if _, err := b.account.Table().Transact(t.Context(), "1.0",
				[]storage.Op{{Kind: storage.Delete, Key: "m_" + lane.OrderPos(seq)}}); err != nil {
				t.Fatal(err)
			}
		}

		b.runEach(b.newRetention(b.faultless), 8*oneDay, 2)
		if n := b.countRows("d_"); n != 0 {
			t.Errorf("%d d_ rows are left, want 0", n)
		}
	})
}

// A packed row (d_) can be lost while its messages are still stored. Retention also removes such
// messages as soon as their time is over.
func TestRetention_RemovesMessagesWithoutTheirPackedRow(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(22, 0)
		w := b.raiseFence()
		b.commitDeliveries(w, 21, seqsTo(1, 20)...)
		b.commitHeld(w, 21) // retention must keep 21, which is held, and 22, which is at the cursor

		if _, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Delete, Key: "d_" + lane.OrderPos(20)}}); err != nil {
			t.Fatal(err)
		}

		r := b.newRetention(b.faultless)
		b.runEach(r, r.KeepFinal-time.Minute, 1)
		if n := b.countRows("m_"); n != 22 {
			t.Errorf("%d messages are left before their time, want 22", n)
		}

		b.runEach(r, 25*time.Hour, 60)

		if keys := b.listKeys(); b.countRows("m_") != 2 || b.countRows("i_") != 2 ||
			!keys["m_"+lane.OrderPos(21)] ||
			!keys["m_"+lane.OrderPos(22)] {
			t.Errorf("%d messages and %d idempotency keys are left, want the held one and the one at the cursor",
				b.countRows("m_"), b.countRows("i_"))
		}
	})
}

// If storage refuses to remove a body, only the message of that body stays, and retention counts
// the refusal.
func TestRetention_ABodyThatStays(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.faultless, quiet)
		w := b.raiseFence()
		for i := range 20 {
			m := newMessage(fmt.Sprint(i), "x")
			if i%10 == 0 {
				m.Body = []byte(newNoise(100<<10, i))
			}

			r, err := a.Append(t.Context(), m, "")
			if err != nil {
				t.Fatal(err)
			}

			b.commitFinal(w, r.Message.ID.Seq, weir.Delivered)
		}

		stuck := b.blobNames()[0]
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Port == "blobs" && c.Op == "Delete" && c.Key == stuck {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: "blob delete", Kind: storage.Conflict, Index: -1,
						Err: errors.New("409 SnapshotsPresent")}}
			}
			return storagetest.Fault{}
		})

		r, refused := b.newRetention(b.store), 0
		r.OnRemoved = func(_, n int) { refused += n }
		b.runEach(r, 8*oneDay, 1)
		if n := b.countRows("m_"); n != 1 || refused != 1 {
			t.Errorf("%d of 20 messages are left, want 1; counted %d, want 1", n, refused)
		}

		b.runEach(r, time.Hour, 23)
		if refused != 1 {
			t.Errorf("tried %d times within a day, want once", refused)
		}

		b.faults.Set(nil)
		b.runEach(r, 2*time.Hour, 1)

		if n := b.countRows("m_"); n != 0 || len(b.blobNames()) != 0 {
			t.Errorf("%d messages and the bodies %v are left after storage has allowed the removal, want 0 and none", n,
				b.blobNames())
		}
	})
}

// If storage refuses to remove a message's row, only that message stays. A message whose
// idempotency row is missing is removed like the others.
func TestRetention_ARowThatStays(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(150, 0)
		b.commitDeliveries(b.raiseFence(), 151, seqsTo(1, 60)...)
		b.commitDeliveries(b.raiseFence(), 151, seqsTo(61, 120)...)
		b.commitDeliveries(b.raiseFence(), 151, seqsTo(121, 150)...)
		missing := readValues(t, b, "m_"+lane.OrderPos(70))["Idem"].(string)
		if _, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Delete, Key: missing}}); err != nil {
			t.Fatal(err)
		}

		b.faults.Set(refuseTransactions(func(op storage.Op) bool { return op.Key == "m_"+lane.OrderPos(33) }))
		b.runEach(b.newRetention(b.store), 8*oneDay, 1)
		if n := b.countRows("m_"); n != 1 || !b.listKeys()["m_"+lane.OrderPos(33)] {
			t.Errorf("%d of 150 messages are left, want number 33 alone", n)
		}
	})
}

func readValues(t *testing.T, b *bench, key string) map[string]any {
	t.Helper()
	row, err := b.account.Table().Get(t.Context(), "1.0", key)
	if err != nil {
		t.Fatal(err)
	}
	return row.Values
}

// If storage does not answer a transaction, or the answer is lost, RunLane keeps its position in
// the log. The next run continues from that position.
func TestRetention_StorageAway(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(120, 0)
		b.commitDeliveries(b.raiseFence(), 121, seqsTo(1, 60)...)
		b.commitDeliveries(b.raiseFence(), 121, seqsTo(61, 120)...)
		time.Sleep(8 * oneDay)
		r, refused := b.newRetention(b.store), 0
		r.OnRemoved = func(_, n int) { refused += n }
		for _, kind := range []storagetest.FaultKind{storagetest.FailBefore,
			storagetest.FailAfter} {
			b.faults.Once(func(c storagetest.Call) bool {
				return c.Op == "Transact" && c.Ops[0].Kind == storage.Delete
			}, storagetest.Fault{Kind: kind})
			if _, err := r.RunLane(t.Context(), 0); err == nil {
				t.Error("RunLane with a failed transaction = no error, want one")
			}
		}

		if next, err := r.RunLane(t.Context(), 0); err != nil || next.IsZero() || refused != 0 {
			t.Errorf("next %s, %v; %d counted as refused, want a next, 0 and no error", next,
				err, refused)
		}

		if n := b.countRows("m_") + b.countRows("i_") + b.countRows("d_"); n != 0 {
			t.Errorf("%d rows are left, want 0", n)
		}
	})
}

// A receiver whose clock was fast has accepted a message with a time in the future. This message
// does not delay the removal of other messages.
func TestRetention_AClockAhead(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(30, 0)
		b.commitDeliveries(b.raiseFence(), 31, seqsTo(1, 30)...)

		if _, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Merge, Key: "m_" + lane.OrderPos(1),
				Values: map[string]any{"AcceptedAt": time.Now().Add(3000 * oneDay).UTC()}}}); err !=
			nil {
			t.Fatal(err)
		}

		b.runEach(b.newRetention(b.faultless), 8*oneDay, 1)
		if n := b.countRows("m_"); n > 1 {
			t.Errorf("%d messages are left, want at most the one that was accepted years ahead", n)
		}
	})
}

// After one process has run the retention of a lane, another process needs only one request to find
// that there is nothing to do.
func TestRetention_OneProcessDoesIt(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(10, 0)
		b.commitDeliveries(b.raiseFence(), 11, seqsTo(1, 10)...)
		time.Sleep(8 * oneDay)
		table := &distantTable{Table: b.account.Table()}
		slow := *b.faultless
		slow.Table = table
		if _, err := b.newRetention(&slow).RunLane(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		before := table.operations.Load()
		next, err := b.newRetention(&slow).RunLane(t.Context(), 0)
		if did := table.operations.Load() - before; err != nil || did != 1 ||
			time.Until(next) < 50*time.Minute {
			t.Errorf("another process, just after: %d requests, next run in %s, %v; want 1, at least 50m and no error",
				did, time.Until(next), err)
		}
	})
}
