package drain_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// Many lanes of one process have large messages at the same time. The bodies under way have no more
// memory than their part of Config.Memory, and each lane is drained.
func TestDrainer_LanesShareMemory(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		const lanes, messages, size, memory = 48, 6, 20 << 10, 6 * 200 << 10
		w := newWorldOf(t, lanes)
		var underWay, most atomic.Int64
		w.cms.setAnswer(func(_ context.Context, d weir.Delivery) weir.Result {
			n := underWay.Add(int64(len(d.Message.Body)))
			defer underWay.Add(-int64(len(d.Message.Body)))
			most.Store(max(most.Load(), n))
			time.Sleep(200 * time.Millisecond)
			return newAnswer(200)
		})

		body := strings.Repeat("x", size)
		counts := make([]int, lanes)
		for i, left := 0, lanes*messages; left > 0; i++ {
			key := fmt.Sprint("k", i)
			if n := w.store.LaneOf(key); counts[n] < messages {
				counts[n]++
				left--
				w.post(key, body)
			}
		}

		p := w.start(func(c *drain.Config) { c.Memory = memory })
		for number := range lanes {
			p.Wake(number)
		}

		for end := time.Now().Add(time.Minute); len(w.cms.listRequests()) <
			lanes*messages; time.Sleep(time.Second) {
			if time.Now().After(end) {
				t.Fatalf("the CMS has got %d messages, want %d: no lane starves",
					len(w.cms.listRequests()), lanes*messages)
			}
		}

		if got := most.Load(); got > memory/6 || got < memory/12 {
			t.Errorf("bodies of %d bytes were under way at a time, want up to %d", got, memory/6)
		}
	})
}
