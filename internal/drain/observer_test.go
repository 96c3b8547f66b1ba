package drain_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

// witness is an Observer that records final messages and events of leases. As a Sender it also
// records the wait before each attempt.
type witness struct {
	drain.Sender
	mu     sync.Mutex
	finals []drain.Final
	waits  []time.Duration
	leases []drain.LeaseEvent
}

func (o *witness) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}

func (o *witness) Finished(_ int, f drain.Final) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finals = append(o.finals, f)
}

func (o *witness) Lease(_ int, event drain.LeaseEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leases = append(o.leases, event)
}

func (o *witness) Send(ctx context.Context, d weir.Delivery) weir.Result {
	o.mu.Lock()
	o.waits = append(o.waits, time.Since(d.Since))
	o.mu.Unlock()
	return o.Sender.Send(ctx, d)
}

// A message is tried twice, becomes dead, and is replayed days later. The wait before an attempt
// counts from the acceptance, the end of the last attempt, or the replay, whichever is latest. The
// time until the message is final counts from the acceptance or the replay.
func TestObserver_SinceWhenItCouldHaveGone(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		m := w.answerByBody("1")
		m.setStatus("1", 500)
		o := &witness{}
		p := w.start(func(c *drain.Config) {
			o.Sender, c.Sender, c.Observer = c.Sender, o, o
			c.Attempts, c.Backoff.Steps = 2, []time.Duration{20 * time.Second}
		})

		id := w.post("a", "1")
		time.Sleep(5 * time.Second)
		p.Wake(0)
		w.waitUntilEmpty(time.Minute)
		time.Sleep(70 * time.Hour)
		m.setStatus("1", 200)
		w.replay(id, lane.ReplayOptions{})
		time.Sleep(7 * time.Second)
		p.Wake(0)
		time.Sleep(5 * time.Second)
		p.close(t)

		near := func(what string, got, want time.Duration) {
			if late := got - want; late < 0 || late > time.Second {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}

		if len(o.waits) != 3 || len(o.finals) != 2 || o.finals[0].Stage != weir.Dead ||
			o.finals[1].Stage != weir.Delivered {
			t.Fatalf("got waits %v, finals %+v, want 3 waits, a death and a delivery",
				o.waits, o.finals)
		}

		near("the first wait", o.waits[0], 5*time.Second)
		near("the retry's", o.waits[1], 20*time.Second)
		near("the replay's", o.waits[2], 7*time.Second)
		near("to the death", o.finals[0].At.Sub(o.finals[0].Since), 25*time.Second)
		near("to the delivery", o.finals[1].At.Sub(o.finals[1].Since), 7*time.Second)
		taken := 0
		for _, event := range o.leases {
			switch event {
			case drain.LeaseTaken:
				taken++
			case drain.LeaseReleased:
				taken--
			default:
				t.Errorf("a lease was %s, want only %s and %s", event, drain.LeaseTaken,
					drain.LeaseReleased)
			}
		}

		if taken != 0 {
			t.Errorf("got the leases %v, want each that was taken to be released", o.leases)
		}
	})
}
