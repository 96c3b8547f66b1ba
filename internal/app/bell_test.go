package app

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/ticket"
)

// A ticket of a process that has its storage alone rings in this process, at the time at which it
// would be visible in a queue.
func TestBell_RingsWhenATicketBecomesVisible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bell{log: slog.New(slog.DiscardHandler)}
		start := time.Now()
		var mu sync.Mutex
		type ring struct {
			lane  int
			after time.Duration
		}

		var got []ring
		put := func(lane int, delay time.Duration) {
			t.Helper()
			if err := b.Put(t.Context(), ticket.Encode(1, lane), delay); err != nil {
				t.Fatal(err)
			}
		}

		put(0, 0) // not connected yet: it has no effect
		b.connect(func(lane int) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, ring{lane, time.Since(start)})
		})

		put(2, 5*time.Second)
		put(1, 0)
		put(ticket.AllLanes, time.Minute)
		put(3, time.Hour)
		time.Sleep(2 * time.Minute)
		b.close()
		put(4, 0)
		time.Sleep(2 * time.Hour)

		mu.Lock()
		defer mu.Unlock()
		want := []ring{{1, 0}, {2, 5 * time.Second}, {ticket.AllLanes, time.Minute}}
		if !slices.Equal(got, want) {
			t.Errorf("got the rings %v, want %v", got, want)
		}

		if b.Put(t.Context(), "no ticket", 0) == nil {
			t.Error("got no error for a text that is no ticket")
		}
	})
}
