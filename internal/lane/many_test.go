package lane_test

import (
	"testing"

	"weir/internal/lane"
	"weir/internal/storage/storagetest"
)

// A post that changes head between the read and the transaction of a bulk change makes it fail. The
// transaction is then made once more. Without that, a busy lane would need a transaction a message.
func TestDiscardMany_RetriesWhenHeadHasMoved(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		const n = 40
		entries := b.appendManyDead(b.raiseFence(), n)
		poster := lane.NewAppender(b.faultless, quiet)
		writes := 0
		b.faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op != "Transact" {
				return storagetest.Fault{}
			}

			if writes++; writes == 1 {
				if _, err := poster.Append(t.Context(), newMessage("meanwhile", "x"), ""); err !=
					nil {
					t.Error(err)
				}
			}

			return storagetest.Fault{}
		})

		counts, err := b.store.Requests().DiscardMany(t.Context(), 0, entries, "reason")
		if want := (lane.BulkCounts{Asked: n}); err != nil || counts != want {
			t.Errorf("got %+v, %v, want %+v and no error", counts, err, want)
		}

		if writes != 2 {
			t.Errorf("got %d transactions, want 2: the refused one, and the one after it", writes)
		}
	})
}
