package drain_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/storage"
)

// pacedTable is a table whose reads and writes take fixed times.
type pacedTable struct {
	storage.Table
	read, write time.Duration
}

func (s pacedTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	time.Sleep(s.read)
	return s.Table.Get(ctx, partition, key)
}

func (s pacedTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	time.Sleep(s.read)
	return s.Table.Range(ctx, q)
}

func (s pacedTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	time.Sleep(s.write)
	return s.Table.Transact(ctx, partition, ops)
}

// Many messages become due shortly after each other. The storage writes for one message do not make
// another message late.
func TestDrainer_DueBesideOtherWrites(t *testing.T) {
	for _, apart := range []time.Duration{30, 37, 43, 51, 70, 130} {
		apart *= time.Millisecond
		t.Run(apart.String(), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.cms.setAnswer(answerAfter(time.Millisecond, 200))
				from, moments := time.Now().Add(10*time.Second), map[string]time.Time{}
				for i := range 40 {
					body := fmt.Sprint(i)
					moments[body] = from.Add(time.Duration(i) * apart)
					w.post(body, body, withDueTime(moments[body]))
				}

				w.start(func(c *drain.Config) {
					c.Store.Table = pacedTable{c.Store.Table, 5 * time.Millisecond,
						8 * time.Millisecond}
				}).Wake(0)

				w.waitUntilEmpty(time.Minute)

				for body, late := range w.measureDelays(moments) {
					if late > 2*time.Millisecond {
						t.Errorf("%s was %s late, want at most 2ms", body, late)
					}
				}

				if n := len(w.cms.listRequests()); n != len(moments) {
					t.Errorf("%d requests, want %v", n, len(moments))
				}
			})
		})
	}
}
