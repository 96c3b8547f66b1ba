package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/internal/weir"
)

// When the faults are over and all lanes are idle, the upstreams of some seeds post messages that
// the CMS refuses for good. Each of these messages has a key of its own, and a holder cannot try
// all of them within seconds. Then the upstreams post good messages of other keys. The refused
// messages must not delay the good ones.

const (
	// turned is the time within which the good messages must be delivered.
	turned = 10 * time.Second
	// others is the number of the good messages.
	others = 4
)

// drawRefusals draws the settings of the refused messages. Most seeds have none.
func (s *settings) drawRefusals(d *dice) {
	s.patience = d.drawBetween("patience", 30*time.Second, 2*time.Minute)
	if !d.drawChance("refusals", 0.15) {
		return
	}

	s.refused, s.refusal = 30+d.drawBelow("refused", 90), []int{403, 500}[d.drawBelow("refusal", 2)]
	if s.swift {
		s.refused *= 5
	}

	s.stand = d.drawBetween("stand", 0, 40*time.Second)
	s.backoff.Max = d.drawBetween("long pauses", 15*time.Second, time.Minute)
}

// firstRefused returns the number of the first refused submission. All submissions posted earlier
// have smaller numbers.
func (w *world) firstRefused() int { return w.messages + w.crowd + w.countPlain() }

// isRefused reports whether the CMS always refuses a submission.
func (w *world) isRefused(number int) bool {
	return number >= w.firstRefused() && number < w.firstRefused()+w.refused
}

// fileRefused posts the refused messages and, some time later, the good ones. It reports whether
// all work is done afterwards.
func (w *world) fileRefused(ctx context.Context) bool {
	if w.refused == 0 {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		// an outage can outlast the time of faults, and a hanging request can outlast the outage
		time.Sleep(left)
	}

	bad := w.firstRefused()
	good := bad + w.refused
	began := time.Now() // w.patience with a bad message is counted from the message's post or later
	w.fileAll(ctx, bad, w.refused, "bad")
	time.Sleep(w.stand + w.pairStands)
	if w.refusal == 403 && time.Since(began) < w.patience-clocks {
		w.check.checkSpared(bad, w.refused)
	}

	if w.pairStands > 0 {
		w.check.checkPair(bad)
	}

	w.fileAll(ctx, good, others, "good")

	for end := time.Now().Add(turned); time.Now().Before(end) &&
		!w.check.isAllTaken(good, others); {
		time.Sleep(50 * time.Millisecond)
	}

	w.check.checkFair(good, others)
	w.quiet = time.Now()

	return w.awaitRest(ctx)
}

// fileAll posts n messages of the contract "article"; see fileAllOf.
func (w *world) fileAll(ctx context.Context, first, n int, key string) {
	w.fileAllOf(ctx, first, n, key, "article")
}

// fileAllOf posts n messages of a contract, each with a key of its own. The messages have the
// numbers first, first+1 and so on. fileAllOf returns when each upstream has its answer or has
// given up.
func (w *world) fileAllOf(ctx context.Context, first, n int, key, contract string) {
	var filed sync.WaitGroup
	for i := first; i < first+n; i++ {
		m := weir.Message{Contract: contract, Key: fmt.Sprint(key, i),
			ContentType: "application/xml", Body: w.newBody(i)}
		s := &submission{number: i, key: m.Key, idem: fmt.Sprint("idem", i), message: m}
		w.check.expectSubmission(s)
		at := w.dice.drawBetween("filed "+key, 0, 100*time.Millisecond)
		filed.Go(func() {
			time.Sleep(at)
			w.sendUntilAccepted(ctx, fmt.Sprint(i), s)
		})
	}

	filed.Wait()
}

// undisturbedFor returns the time for which the last fault can still have consequences.
func (c *checker) undisturbedFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.disturbed.Add(recovered))
}

// filedAs returns a submission's message in the log, or nil if the post was not answered.
func (c *checker) filedAs(number int) *filed {
	id := c.expected[number].id
	if id.IsZero() {
		return nil
	}
	return c.laneOf(id.Lane).log[id.Seq-1]
}

// isAllTaken reports whether the CMS has taken the n submissions from the number first on.
// Submissions whose posts were not answered do not count.
func (c *checker) isAllTaken(first, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		if f := c.filedAs(i); f != nil && !f.taken {
			return false
		}
	}

	return true
}

// checkFair checks that the CMS has taken the n submissions from the number first on.
func (c *checker) checkFair(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		c.counts.Turned++
		if f := c.filedAs(i); f != nil && !f.taken {
			c.addViolation("unfair",
				"seq %d of lane %d, key %s, waits longer than %s behind %d that the CMS answers %d",
				f.id.Seq,
				f.id.Lane, f.key, turned, c.w.refused, c.w.refusal)
		}
	}
}

// checkSpared checks that no attempt counts for the n submissions from the number first on. The CMS
// has taken no message after these submissions were posted, so the refusals can mean that the CMS
// has failed as a whole.
func (c *checker) checkSpared(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := first; i < first+n; i++ {
		if f := c.filedAs(i); f != nil {
			if st, err := c.store.Messages().Status(context.Background(), f.id); err != nil ||
				st.AttemptCount != 0 {
				c.addViolation("spared",
					"seq %d of lane %d: %d attempts are counted, though the CMS has taken nothing (%v)", f.id.Seq,
					f.id.Lane, st.AttemptCount, err)
			}
		}
	}
}
