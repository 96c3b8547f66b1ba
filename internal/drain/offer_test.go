package drain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// newOfferingAppender returns an appender that offers its messages to the process p, and wakes p.
func (w *world) newOfferingAppender(p *process) *lane.Appender {
	a := lane.NewAppender(w.store, lanetest.Quiet)
	a.OnFiled, a.OnWake = p.OfferAppended, p.WakeOffered
	return a
}

func (w *world) appendBy(a *lane.Appender, key, body string) {
	w.t.Helper()
	m := weir.Message{Contract: "article", Key: key, Body: []byte(body)}
	if _, err := lanetest.AppendAndWake(w.t.Context(), a, m, ""); err != nil {
		w.t.Fatal(err)
	}
}

// countLogReads returns a counter of the reads of the log that p makes after this call.
func countLogReads(p *process) *atomic.Int64 {
	n := &atomic.Int64{}
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == "Range" && strings.HasPrefix(c.Key, "m_") {
			n.Add(1)
		}
		return storagetest.Fault{}
	})

	return n
}

// gatedTable blocks the first transaction until the test closes the channel "may".
type gatedTable struct {
	storage.Table
	once       sync.Once
	begun, may chan struct{} // begun is closed when the first transaction has begun
}

func (h *gatedTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	h.once.Do(func() { close(h.begun); <-h.may })
	return h.Table.Transact(ctx, partition, ops)
}

func TestDrainer_Offer(t *testing.T) {
	t.Run("OwnAppendIsNotReadFromStorage", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			reads, a := countLogReads(p), w.newOfferingAppender(p)
			for i := range 50 {
				w.appendBy(a, "a", fmt.Sprint(i))
				time.Sleep(time.Second)
			}

			w.waitUntilEmpty(time.Minute)
			if n := reads.Load(); n > 2 {
				t.Errorf("the log was read %d times, want at most 2", n)
			}

			if got := w.listDelivered("a"); len(got) != 50 || got[49] != "49" {
				t.Errorf("delivered: %v, want 50 of them and 49 last", got)
			}
		})
	})

	t.Run("AppendForACallerThatLeftIsSent", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			a := w.newOfferingAppender(p)
			w.appendBy(a, "a", "0")
			time.Sleep(10 * time.Second) // the lane is idle
			table := &gatedTable{Table: w.store.Table, begun: make(chan struct{}),
				may: make(chan struct{})}
			w.store.Table = table
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() {
				_, err := a.Append(ctx,
					weir.Message{Contract: "article", Key: "a", Body: []byte("1")}, "")
				gone <- err
			}()

			<-table.begun
			cancel()
			if err := <-gone; err == nil {
				t.Error("a caller that is gone got no error, want one")
			}

			close(table.may)
			time.Sleep(time.Second)
			if got := w.listDelivered("a"); !slices.Equal(got, []string{"0", "1"}) {
				t.Errorf("delivered a second later: %v, want [0 1]", got)
			}
		})
	})

	t.Run("AppendOfAnotherInstanceIsRead", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p, other := w.start(), w.start()
			mine, theirs := w.newOfferingAppender(p), w.newOfferingAppender(other)
			var want []string
			for i := range 60 {
				w.appendBy([]*lane.Appender{mine, theirs, mine}[i%3], "a", fmt.Sprint(i))
				want = append(want, fmt.Sprint(i))
				time.Sleep(time.Duration(i%7) * 100 * time.Millisecond)
			}

			w.waitUntilEmpty(time.Minute)
			if got := w.listDelivered("a"); !slices.Equal(got, want) {
				t.Errorf("delivered: %v, want %v", got, want)
			}
		})
	})

	t.Run("MoreThanIsKeptIsRead", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			a := w.newOfferingAppender(p)
			for i := range 30 { // more bytes than a process keeps of its appended messages
				w.appendBy(a, fmt.Sprint("k", i%10), newNoise(300<<10, i))
				w.appendBy(a, fmt.Sprint("k", i%10), "small")
			}

			for i := range 300 {
				w.appendBy(a, fmt.Sprint("k", i%10), "x")
			}

			w.waitUntilEmpty(2 * time.Minute)
			if got := len(w.cms.listRequests()); got != 360 {
				t.Errorf("%d requests, want 360", got)
			}

			w.checkNoOverlap()
		})
	})
}
