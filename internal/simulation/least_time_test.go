package simulation_test

import (
	"slices"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// In some seeds, attempts without a verdict of the CMS make a message dead only after a least time
// (delivery.retryFor; see internal/drain/outcome_recorder.go). The checker measures the time from
// the beginning of the first attempt that a commit records: the process may stand still in between.

// drawRetryFor draws the least time. A seed with backoff.Steps has none, because its last step is
// longer anyway.
func (s *settings) drawRetryFor(d *dice) {
	if len(s.backoff.Steps) == 0 && d.drawChance("retry for", 0.3) {
		s.retryFor = d.drawBetween("retry for", 25*time.Second, time.Minute)
		s.drawPair(d)
	}
}

// drawPair draws two refused messages in place of many (see refused_test.go), for longer than the
// least time. If both are in one lane, the CMS seems to be the cause, and none of the two becomes
// dead.
func (s *settings) drawPair(d *dice) {
	if s.refused == 0 && d.drawChance("pair", 0.3) {
		s.refused, s.refusal, s.patience = 2, 500, 3*time.Minute
		s.pairStands = s.retryFor + d.drawBetween("pair stands", 20*time.Second, 40*time.Second)
	}
}

// checkPair checks that the two refused messages of a quiet lane still wait, although they were
// tried for the least time. The CMS has taken nothing meanwhile, so their failures show nothing
// about them.
func (c *checker) checkPair(first int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, other := c.filedAs(first), c.filedAs(first+1)
	if one == nil || other == nil || one.id.Lane != other.id.Lane {
		return
	}

	for _, f := range []*filed{one, other} {
		if stage := c.stageOf(f); stage == weir.Dead {
			c.addViolation("spared",
				"seq %d of lane %d is dead, though the CMS has taken nothing since it was filed",
				f.id.Seq, f.id.Lane)
		}
	}
}

// recordedWithin is how far the checker's times may differ from the times that processes record: by
// a slow attempt, by a commit that storage does not answer at once, and by clocks that differ.
const recordedWithin = 15 * time.Second

// trying is the checker's knowledge of a message's attempts since its last replay.
type trying struct {
	// when the first counted attempt began or was recorded; zero = none was recorded
	failedAt   time.Time
	attempt    int       // number of the attempt that a process made last
	sentAt     time.Time // when that attempt began
	countedAt  time.Time // when the last attempt with a smaller number began; it is one that counts
	isRejected bool      // a process got an answer by which the CMS rejects the message
}

// noteAttempts records the attempts in a holder's write of a message's row. If the message is dead,
// noteAttempts checks that the CMS has rejected it, that no further attempt can be made, or that it
// was tried for the least time.
func (c *checker) noteAttempts(f *filed, op storage.Op) {
	count, _ := op.Values["AttemptCount"].(int64)
	switch stage, _ := op.Values["Stage"].(string); {
	case stage == string(weir.Dead):
		c.checkJudged(f, op)
		c.checkNotHasty(f, op)
	case stage == string(weir.Retrying) && int(count) > f.base:
		if f.failedAt.IsZero() {
			f.failedAt = f.sentAt
		}
		if f.failedAt.IsZero() { // no request of the message has reached the CMS
			f.failedAt = time.Now()
		}
	}
}

// cannotBeTried reports whether a dead message died because no further attempt can be made.
func cannotBeTried(op storage.Op) bool {
	reason, _ := op.Values["LastError"].(string)
	return strings.HasPrefix(reason, "its contract has been missing") ||
		strings.HasPrefix(reason, "the message's body is gone")
}

// endedProcesses reports whether a dead message died because processes ended while they sent it. No
// row counts these attempts. TestKillers checks that the guard finds the right message.
func endedProcesses(op storage.Op) bool {
	reason, _ := op.Values["LastError"].(string)
	return strings.HasPrefix(reason, "processes ended")
}

// checkJudged checks that a dead message has an answer of the CMS about it, that no further attempt
// can be made, that processes ended while they sent it, or that its attempts are used up.
func (c *checker) checkJudged(f *filed, op storage.Op) {
	count, _ := op.Values["AttemptCount"].(int64)
	if f.isRejected || cannotBeTried(op) || endedProcesses(op) {
		return
	}

	if int(count)-f.base < c.w.attempts {
		c.addViolation("unjudged",
			"seq %d of lane %d is dead after %d of %d attempts, and the CMS has not "+
				"rejected it: %s",
			f.id.Seq, f.id.Lane, int(count)-f.base, c.w.attempts, op.Values["LastError"])
	}
}

func (c *checker) checkNotHasty(f *filed, op storage.Op) {
	reason, _ := op.Values["LastError"].(string)
	if c.w.retryFor == 0 || f.isRejected || cannotBeTried(op) {
		return
	}

	tried := time.Duration(0)
	if !f.failedAt.IsZero() {
		tried = time.Since(f.failedAt)
	}

	if tried < c.w.retryFor-recordedWithin {
		c.addViolation("hasty",
			"seq %d of lane %d is dead %s after its first failure, without a verdict, and "+
				"was to be tried for %s: %s", f.id.Seq, f.id.Lane, tried, c.w.retryFor, reason)
	}
}

// noteAttempt records a request for a message. An attempt that does not count keeps its number: the
// next attempt has the same.
func (f *trying) noteAttempt(number int) {
	if number != f.attempt {
		f.countedAt = f.sentAt
	}
	f.attempt, f.sentAt = number, time.Now()
}

// mayTryMore reports whether a message whose attempts are used up may be tried again, because its
// last attempt that counts began before the least time was over.
func (c *checker) mayTryMore(f *filed) bool {
	return c.w.retryFor > 0 && f.countedAt.Sub(f.failedAt) < c.w.retryFor+recordedWithin
}

// isRejection reports whether the CMS rejects a message by a status. Other statuses of 4xx are not
// about the content of the message.
func isRejection(status int) bool {
	return slices.Contains([]int{400, 413, 414, 415, 422, 431}, status)
}
