package drain_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage"
)

// cancellingTable is a table that calls cancel before the first transaction that moves several due
// messages into their keys' queues.
type cancellingTable struct {
	storage.Table
	cancel func()
	armed  *atomic.Bool // false = cancel was called
}

func (c cancellingTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	if countMoved(ops) > 1 && c.armed.CompareAndSwap(true, false) {
		c.cancel()
	}
	return c.Table.Transact(ctx, partition, ops)
}

// countMoved returns how many scheduled messages a transaction moves. The move of a message deletes
// the scheduled message's row (s_).
func countMoved(ops []storage.Op) (count int) {
	for _, op := range ops {
		if op.Kind == storage.Delete && strings.HasPrefix(op.Key, "s_") {
			count++
		}
	}
	return count
}

// Several due messages are moved into their keys' queues in one transaction. If one of the messages
// was cancelled, storage refuses the transaction. The holder then moves the other messages in
// another transaction, and sends each at its due time.
func TestDrainer_AMoveRefusedForOneMessageGoesOnWithTheOthers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(answerAfter(time.Millisecond, 200))
		moment := time.Now().Add(30 * time.Second)
		moments := map[string]time.Time{}
		cancelled := w.post("cancelled", "cancelled", withDueTime(moment))

		for _, key := range []string{"a", "b", "c", "d"} {
			moments[key] = moment
			w.post(key, key, withDueTime(moment))
		}

		armed := &atomic.Bool{}
		armed.Store(true)
		w.start(func(c *drain.Config) {
			store := *c.Store
			store.Table = cancellingTable{store.Table, func() {
				if _, err := w.store.Requests().Cancel(t.Context(), cancelled); err != nil {
					t.Errorf("Cancel = %v, want no error", err)
				}
			}, armed}

			c.Store = &store
		}).Wake(0)

		w.waitUntilEmpty(2 * time.Minute)
		if armed.Load() {
			t.Fatal("no move of several messages was written, want one")
		}

		late := w.measureDelays(moments)
		if len(late) != len(moments) {
			t.Errorf("%d messages were sent: %v, want %d", len(late), late, len(moments))
		}

		for body, d := range late {
			if d > 100*time.Millisecond {
				t.Errorf("%s was sent %s after its moment, want 100ms at most", body, d)
			}
		}
	})
}
