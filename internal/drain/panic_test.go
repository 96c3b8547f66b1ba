package drain_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

// panicking is an Observer that panics in the first attempts.
type panicking struct {
	witness
	left int
}

func (o *panicking) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {
	if o.left > 0 {
		o.left--
		panic("boom")
	}
}

// A panic in a session costs the lane a failed session. The process lives on, gives the lease back,
// and a later session delivers the messages in order.
func TestDrainer_GoesOnAfterAPanicInASession(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		o := &panicking{left: 2}
		var log bytes.Buffer
		p := w.start(withLog(&log), func(c *drain.Config) { c.Observer = o })
		for _, body := range []string{"1", "2", "3"} {
			w.post("a", body)
		}

		p.Wake(0)
		w.waitUntilEmpty(5 * time.Minute)
		p.close(t)

		got := strings.Join(w.listDelivered("a"), " ")
		if !strings.HasSuffix(got, "1 2 3") || strings.Trim(got, "1 ") != "2 3" {
			t.Errorf("got the deliveries %s, want 1 (again after each panic), 2 and 3", got)
		}

		if n := strings.Count(log.String(), "panic: boom"); n != 2 {
			t.Errorf("got %d panics in the log, want 2:\n%s", n, &log)
		}

		w.checkNoOverlap()
	})
}
