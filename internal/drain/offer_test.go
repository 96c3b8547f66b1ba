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
	"weir/internal/weir"
)

// receiver is an appender that hands what it files to its process's drain.
func (w *world) receiver(p *process) *lane.Appender {
	a := lane.NewAppender(w.store, quietLog)
	a.OnFiled, a.OnWake = p.OfferAppended, p.WakeOffered
	return a
}

func (w *world) file(a *lane.Appender, key, body string) {
	w.t.Helper()
	m := weir.Message{Contract: "article", Key: key, Body: []byte(body)}
	if _, err := a.Append(w.t.Context(), m, ""); err != nil {
		w.t.Fatal(err)
	}
}

// pageReads counts a process's reads of the log.
func pageReads(p *process) *atomic.Int64 {
	n := &atomic.Int64{}
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		if c.Op == "Range" && strings.HasPrefix(c.Key, "m_") {
			n.Add(1)
		}
		return storagetest.Fault{}
	})
	return n
}

// heldTable holds the first transaction until it may go on.
type heldTable struct {
	storage.Table
	once       sync.Once
	begun, may chan struct{}
}

func (h *heldTable) Transact(ctx context.Context, partition string, ops []storage.Op) ([]storage.ETag, error) {
	h.once.Do(func() { close(h.begun); <-h.may })
	return h.Table.Transact(ctx, partition, ops)
}

func TestDrainer_Offer(t *testing.T) {
	t.Run("WhatIsFiledHereIsNotReadBack", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			reads, a := pageReads(p), w.receiver(p)
			for i := range 50 {
				w.file(a, "a", fmt.Sprint(i))
				time.Sleep(time.Second)
			}
			w.settled(time.Minute)
			if n := reads.Load(); n > 2 {
				t.Errorf("the log was read %d times", n)
			}
			if got := w.delivered("a"); len(got) != 50 || got[49] != "49" {
				t.Errorf("delivered: %v", got)
			}
		})
	})
	t.Run("WhatIsFiledForACallerThatIsGoneIsSent", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			a := w.receiver(p)
			w.file(a, "a", "0")
			time.Sleep(10 * time.Second) // the lane is at rest
			table := &heldTable{Table: w.store.Table, begun: make(chan struct{}), may: make(chan struct{})}
			w.store.Table = table
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() {
				_, err := a.AppendWithoutWake(ctx, weir.Message{Contract: "article", Key: "a", Body: []byte("1")}, "")
				gone <- err
			}()
			<-table.begun
			cancel()
			if err := <-gone; err == nil {
				t.Error("a caller that is gone was answered")
			}
			close(table.may)
			time.Sleep(time.Second)
			if got := w.delivered("a"); !slices.Equal(got, []string{"0", "1"}) {
				t.Errorf("delivered a second later: %v, want [0 1]", got)
			}
		})
	})
	t.Run("WhatAnotherInstanceFiledInBetweenIsRead", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p, other := w.start(), w.start()
			mine, theirs := w.receiver(p), w.receiver(other)
			var want []string
			for i := range 60 {
				w.file([]*lane.Appender{mine, theirs, mine}[i%3], "a", fmt.Sprint(i))
				want = append(want, fmt.Sprint(i))
				time.Sleep(time.Duration(i%7) * 100 * time.Millisecond)
			}
			w.settled(time.Minute)
			if got := w.delivered("a"); !slices.Equal(got, want) {
				t.Errorf("delivered: %v", got)
			}
		})
	})
	t.Run("MoreThanIsKeptIsRead", func(t *testing.T) {
		simulate(t, func(t *testing.T, w *world) {
			p := w.start()
			a := w.receiver(p)
			for i := range 30 { // three quarters of a megabyte each time the drain is behind
				w.file(a, fmt.Sprint("k", i%10), noise(300<<10, i))
				w.file(a, fmt.Sprint("k", i%10), "small")
			}
			for i := range 300 {
				w.file(a, fmt.Sprint("k", i%10), "x")
			}
			w.settled(2 * time.Minute)
			if got := len(w.cms.requests()); got != 360 {
				t.Errorf("%d requests", got)
			}
			w.noOverlap()
		})
	})
}
