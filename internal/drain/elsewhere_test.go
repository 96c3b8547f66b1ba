package drain_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/storage/storagetest"
)

// countCalls returns a counter of all calls of the table that p makes after this call.
func countCalls(p *process) *atomic.Int64 {
	n := &atomic.Int64{}
	p.faults.Set(func(storagetest.Call) storagetest.Fault {
		n.Add(1)
		return storagetest.Fault{}
	})
	return n
}

// Another process accepts a message each second. The holder looks often after each of them, so that
// it sends the next one soon, and stops looking when no more come.
func TestDrainer_MessagesFromElsewhereAreSentSoon(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		calls := countCalls(p)
		w.post("k", "first")
		p.Wake(0)
		time.Sleep(1300 * time.Millisecond)

		var lags []time.Duration
		for i := range 40 {
			sent, postedAt := len(w.cms.listRequests()), time.Now()
			w.post("k", fmt.Sprint(i))
			time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
			if requests := w.cms.listRequests(); len(requests) > sent {
				lags = append(lags, requests[sent].at.Sub(postedAt))
			}
		}

		if len(lags) != 40 {
			t.Fatalf("got %d of 40 messages within a second, want all", len(lags))
		}

		lags = lags[1:] // before the first one the holder looked seldom
		slices.Sort(lags)

		if half, most := lags[len(lags)/2], lags[len(lags)-1]; half > 60*time.Millisecond ||
			most > 150*time.Millisecond {
			t.Errorf("got messages sent after %s, half of them after %s; want 150ms and 60ms at most", most, half)
		}

		calls.Store(0)
		time.Sleep(10 * time.Second)
		if got := calls.Load(); got > 70 {
			t.Errorf("got %d calls after the last message, want 70 at most", got)
		}

		calls.Store(0)
		time.Sleep(time.Hour)
		if got := calls.Load(); got != 0 {
			t.Errorf("got %d calls while the lane was empty, want none", got)
		}
	})
}

// The messages of a single instance cost no more looks than before.
func TestDrainer_OwnMessagesMakeNoCloseLooks(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		p := w.start()
		calls, a := countCalls(p), w.newOfferingAppender(p)
		for i := range 100 {
			w.appendBy(a, "k", fmt.Sprint(i))
			time.Sleep(time.Second + time.Duration(i)*7*time.Millisecond)
		}

		if got := calls.Load(); got > 600 {
			t.Errorf("got %d calls for 100 messages, want 600 at most", got)
		}
	})
}
