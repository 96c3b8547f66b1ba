package drain_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

// A contract's steps can reject a message although the CMS answered with status 200. Such an answer
// shows that the CMS works. So the lane does not pause, even if messages of many keys are rejected.
func TestDrainer_RejectedMessagesDoNotPauseTheLane(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.cms.setAnswer(func(_ context.Context, d weir.Delivery) weir.Result {
			if strings.HasPrefix(d.Message.Key, "bad") {
				return weir.Result{Outcome: weir.OutcomeRejected, Status: 200,
					Reason: "create: 200: made news-2 of news"}
			}
			return newAnswer(200)
		})

		const bad = 8
		for n := range bad {
			w.post(fmt.Sprint("bad", n%4), "x")
		}

		good := w.post("good", "x")
		began := time.Now()
		w.start().Wake(0)
		c := w.waitUntilEmpty(time.Minute)
		if took := time.Since(began); took > time.Second || c.Tail.PauseCount != 0 ||
			c.Tail.Counts.Dead != bad ||
			w.status(good).Stage != weir.Delivered {
			t.Errorf("after %s got %+v, want %d dead, one delivered, and no pause", took,
				c.Tail, bad)
		}
	})
}
