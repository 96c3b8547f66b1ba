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

// cancelledBefore is a table in which a message is cancelled just before a release of it is written.
type cancelledBefore struct {
	storage.Table
	cancel func()
	armed  *atomic.Bool
}

func (c cancelledBefore) Transact(ctx context.Context, partition string, ops []storage.Op) ([]storage.ETag, error) {
	if countReleased(ops) > 1 && c.armed.CompareAndSwap(true, false) {
		c.cancel()
	}
	return c.Table.Transact(ctx, partition, ops)
}

// countReleased returns how many due rows a transaction deletes.
func countReleased(ops []storage.Op) (count int) {
	for _, op := range ops {
		if op.Kind == storage.Delete && strings.HasPrefix(op.Key, "s_") {
			count++
		}
	}
	return count
}

// If one message of a release was cancelled, storage refuses the whole release. The holder releases the others
// again, and sends them at their due time.
func TestDrainer_ReleaseRefusedForOneMessageGoesOnWithTheOthers(t *testing.T) {
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
			store.Table = cancelledBefore{store.Table, func() {
				if _, err := w.store.Cancel(t.Context(), cancelled); err != nil {
					t.Errorf("Cancel = %v, want no error", err)
				}
			}, armed}
			c.Store = &store
		}).Wake(0)
		w.waitUntilEmpty(2 * time.Minute)
		if armed.Load() {
			t.Fatal("no release of several messages was written, want one")
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
