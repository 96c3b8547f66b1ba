package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// CancelMany cancels scheduled messages with callbacks in one transaction. Each cancellation needs
// a write of the outbox's marker. A transaction can write a row only once, so one write must serve
// all cancellations.
func TestCancelMany_CancelsMessagesWithCallbacksTogether(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.faultless, quiet)
		const n = 20
		var seqs []int64
		for i := range n {
			m := newMessage(fmt.Sprint(i), "x")
			m.DueAt, m.Callback = time.Now().Add(time.Hour), "https://hooks.example.com/"
			r, err := a.Append(t.Context(), m, "")
			if err != nil {
				t.Fatal(err)
			}

			seqs = append([]int64{r.Message.ID.Seq}, seqs...)
		}

		entries, _, err := b.faultless.ReadMany(t.Context(), 0, seqs)
		if err != nil {
			t.Fatal(err)
		}

		writes := 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" {
				writes++
			}
			return storagetest.Fault{}
		})

		counts, err := b.store.Requests().CancelMany(t.Context(), 0, entries)
		if err != nil || counts != (lane.BulkCounts{Cancelled: n}) || writes != 1 {
			t.Errorf("got %+v, %v, in %d transactions, want %d cancelled in one", counts,
				err, writes, n)
		}

		for _, e := range b.readWholeLog() {
			if e.Stage != weir.Cancelled {
				t.Errorf("got stage %q of message %d, want cancelled", e.Stage, e.Seq())
			}
		}

		if got := b.countRows("n_"); got != n {
			t.Errorf("got %d events in the outbox, want %d", got, n)
		}
	})
}

// Storage makes the transaction, and its answer is lost. The nonce in the rows shows that the call
// itself has cancelled the messages, so they do not count as too late. The message of another
// caller does.
func TestCancelMany_ALostAnswerIsNoFailure(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		a := lane.NewAppender(b.faultless, quiet)
		var seqs []int64
		for i := range 3 {
			m := newMessage(fmt.Sprint(i), "x")
			m.DueAt = time.Now().Add(time.Hour)
			r, err := a.Append(t.Context(), m, "")
			if err != nil {
				t.Fatal(err)
			}

			seqs = append([]int64{r.Message.ID.Seq}, seqs...)
		}

		entries, _, err := b.faultless.ReadMany(t.Context(), 0, seqs)
		if err != nil {
			t.Fatal(err)
		}

		lost := 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Transact" {
				if lost++; lost == 1 {
					return storagetest.Fault{Kind: storagetest.FailAfter}
				}
			}
			return storagetest.Fault{}
		})

		// the second call is another one
		for _, want := range []lane.BulkCounts{{Cancelled: 3}, {TooLate: 3}} {
			counts, err := b.store.Requests().CancelMany(t.Context(), 0, entries)
			if err != nil || counts != want {
				t.Errorf("got %+v, %v, want %+v", counts, err, want)
			}
		}
	})
}
