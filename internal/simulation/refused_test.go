package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/internal/weir"
)

// After the faults, when all is at rest, some seeds file messages that the CMS refuses for good, and then messages of
// other keys. The refused messages have more keys than a holder can try within seconds. The messages of other keys must
// not wait for them.

const (
	// turned bounds the time until a message of another key is delivered, although refused messages are before it.
	turned = 10 * time.Second
	// others is the number of messages of other keys, which the CMS takes.
	others = 4
)

// drawRefusals draws the number of refused messages of a seed.
func (s *settings) drawRefusals(d *dice) {
	s.patience = d.drawBetween("patience", 30*time.Second, 2*time.Minute)
	if s.rate > 20*time.Millisecond || !d.drawChance("refusals", 0.15) {
		return
	}
	s.refused, s.refusal = 30+d.drawBelow("refused", 90), []int{403, 500}[d.drawBelow("refusal", 2)]
	if s.swift {
		s.refused *= 5
	}
	s.stand = d.drawBetween("stand", 0, 40*time.Second)
	s.backoff.Max = d.drawBetween("long pauses", 15*time.Second, time.Minute)
}

// firstRefused returns the number of the first refused submission. It follows the numbers of all other submissions.
func (w *world) firstRefused() int { return w.messages + w.crowd + w.countPlain() }

// isRefused reports whether the CMS always refuses a submission.
func (w *world) isRefused(number int) bool {
	return number >= w.firstRefused() && number < w.firstRefused()+w.refused
}

// fileRefused files messages that the CMS refuses, and some time later others. It reports whether
// everything has come to rest again.
func (w *world) fileRefused(ctx context.Context) bool {
	if w.refused == 0 {
		return true
	}
	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left) // an outage may last longer than the faults, and a hanging request longer than the outage
	}
	bad := w.firstRefused()
	good := bad + w.refused
	began := time.Now() // the CMS may refuse them all from the first on, although the last is filed much later
	w.fileAll(ctx, bad, w.refused, "bad")
	time.Sleep(w.stand)
	if w.refusal == 403 && time.Since(began) < w.patience-clocks {
		w.check.checkSpared(bad, w.refused)
	}
	w.fileAll(ctx, good, others, "good")
	for end := time.Now().Add(turned); time.Now().Before(end) && !w.check.isAllTaken(good, others); {
		time.Sleep(50 * time.Millisecond)
	}
	w.check.checkFair(good, others)
	w.quiet = time.Now()
	return w.awaitRest(ctx)
}

// fileAll files n messages, each with a key of its own, numbered from first on. It returns when the upstreams have got
// their answers or given up.
func (w *world) fileAll(ctx context.Context, first, n int, key string) {
	var filed sync.WaitGroup
	for i := first; i < first+n; i++ {
		m := weir.Message{Contract: "article", Key: fmt.Sprint(key, i), ContentType: "application/xml",
			Body: w.newBody(i)}
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

// undisturbedFor returns the time for which the consequences of the last fault may still go on.
func (c *checker) undisturbedFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.disturbed.Add(recovered))
}

// filedAs returns the message of a submission in the log, or nil if the submission got no answer.
func (c *checker) filedAs(number int) *filed {
	id := c.expected[number].id
	if id.IsZero() {
		return nil
	}
	return c.laneOf(id.Lane).log[id.Seq-1]
}

// isAllTaken looks at n submissions, from the number first on, and reports whether the CMS has taken all of them that
// are in the log.
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

// checkFair checks that refused messages do not delay messages of other keys by more than turned.
func (c *checker) checkFair(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := first; i < first+n; i++ {
		c.counts.Turned++
		if f := c.filedAs(i); f != nil && !f.taken {
			c.addViolation("unfair",
				"seq %d of lane %d, key %s, waits longer than %s behind %d that the CMS answers %d", f.id.Seq,
				f.id.Lane, f.key, turned, c.w.refused, c.w.refusal)
		}
	}
}

// checkSpared checks that no attempt of n submissions, from the number first on, is counted, because for these attempts
// the CMS may have failed as a whole.
func (c *checker) checkSpared(first, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := first; i < first+n; i++ {
		if f := c.filedAs(i); f != nil {
			if st, err := c.store.Messages().Status(context.Background(), f.id); err != nil || st.AttemptCount != 0 {
				c.addViolation("spared",
					"seq %d of lane %d: %d attempts are counted, though the CMS has taken nothing (%v)", f.id.Seq,
					f.id.Lane, st.AttemptCount, err)
			}
		}
	}
}
