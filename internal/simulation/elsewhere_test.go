package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/internal/weir"
)

// When the faults are over and all lanes are idle, the upstreams of some seeds post one message
// after the other to an instance that does not hold the lane. The holder finds them by looking. It
// looks often after the first of them, so the others wait shortly.

const (
	elsewhereMessages = 8
	// elsewhereWithin is the time within which half of the messages must be sent: a look each 50
	// ms, a read of the log, and the answer of the CMS.
	elsewhereWithin = 150 * time.Millisecond
)

// drawElsewhere draws whether a seed has such messages.
func (s *settings) drawElsewhere(d *dice) {
	s.elsewhere = s.instances > 1 && s.missing.contract == "" &&
		d.drawChance("elsewhere", 0.15)
}

// fileElsewhere posts the messages, and checks how long they wait. It reports whether all work is
// done afterwards.
func (w *world) fileElsewhere(ctx context.Context) bool {
	if !w.elsewhere {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left)
	}

	var lags []time.Duration
	for i := range elsewhereMessages {
		w.receiver = w.slots[min(i, 1)]
		n := w.check.countExpected()
		m := weir.Message{Contract: "article", Key: "elsewhere", ContentType: "application/xml",
			Body: w.newBody(n)}
		s := &submission{number: n, key: m.Key, idem: fmt.Sprint("idem", n), message: m}
		w.check.expectSubmission(s)
		w.sendUntilAccepted(ctx, fmt.Sprint(n), s)
		accepted := time.Now()
		for time.Since(accepted) < 2*time.Second && !w.check.isAllTaken(n, 1) {
			time.Sleep(5 * time.Millisecond)
		}

		lags = append(lags, time.Since(accepted))
		time.Sleep(time.Until(accepted.Add(time.Second)))
	}

	w.receiver = nil
	w.check.checkElsewhere(lags[2:])
	w.quiet = time.Now()

	return w.awaitRest(ctx)
}

// checkElsewhere checks how long messages waited that the holder had to find.
func (c *checker) checkElsewhere(lags []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	slices.Sort(lags)
	c.counts.Elsewhere += len(lags)
	if half := lags[len(lags)/2-1]; half > elsewhereWithin {
		c.addViolation("unseen", "half of the messages of another instance waited %s or longer: %v",
			half, lags)
	}
}
