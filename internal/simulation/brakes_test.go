package simulation_test

import (
	"context"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

// When the faults are over and all lanes are idle, the CMS of some seeds rejects every message of a
// contract for a while, as after a change of its content type. In each process the brake
// (delivery.brake; see internal/drain/brake.go) closes after some dead messages. All others wait,
// and are delivered when the CMS takes the contract again.

const (
	// rejectedAlike is the number of the messages that the CMS rejects.
	rejectedAlike = 25
	// rejectsFor is the time for which the CMS rejects them.
	rejectsFor = 15 * time.Second
)

// braking has the state of the rejections of one contract.
type braking struct {
	limit   int // the setting delivery.brake; 0 = the seed has no such rejections
	first   atomic.Int64
	isOn    atomic.Bool
	senders map[*process]bool // processes that sent such messages; guarded by checker.mu
}

// drawBrake draws whether the CMS rejects a contract for a while. Most seeds do not.
func (s *settings) drawBrake(d *dice) {
	s.braking = &braking{senders: map[*process]bool{}}
	if len(s.backoff.Steps) == 0 && s.missing.contract == "" && s.every == 0 &&
		s.runs == 0 && d.drawChance("brake", 0.15) {
		s.braking.limit = 2 + d.drawBelow("brake limit", 3)
		// Refused messages die after delivery.patience. The posts can take long, if instances are
		// away.
		s.patience = max(s.patience, 3*time.Minute)
	}
}

// get returns the setting delivery.brake.
func (b *braking) get() int {
	if b == nil {
		return 0
	}
	return b.limit
}

// rejects reports whether the CMS rejects a submission now.
func (b *braking) rejects(number int) bool {
	return b != nil && b.isOn.Load() && int64(number) >= b.first.Load() &&
		int64(number) < b.first.Load()+rejectedAlike
}

// fileRejected posts the messages that the CMS rejects, and then messages of another contract. It
// reports whether all work is done afterwards.
func (w *world) fileRejected(ctx context.Context) bool {
	if w.braking == nil || w.braking.limit == 0 {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left)
	}

	first := w.check.countExpected()
	w.braking.first.Store(int64(first))
	w.braking.isOn.Store(true)
	w.fileAllOf(ctx, first, rejectedAlike, "alike", "article")
	time.Sleep(rejectsFor)
	w.fileAllOf(ctx, first+rejectedAlike, others, "beside", "edit")

	for end := time.Now().Add(turned); time.Now().Before(end) &&
		!w.check.isAllTaken(first+rejectedAlike, others); {
		time.Sleep(50 * time.Millisecond)
	}

	w.check.checkFair(first+rejectedAlike, others)
	w.check.checkBraked(first)
	w.braking.isOn.Store(false)

	for end := time.Now().Add(backWithin); time.Now().Before(end) &&
		w.check.countWaiting(first, rejectedAlike) > 0; {
		time.Sleep(50 * time.Millisecond)
	}

	if n := w.check.countWaiting(first, rejectedAlike); n > 0 {
		w.check.reportViolation("unaware",
			"%d messages still wait, %s after the CMS takes their contract again", n, backWithin)
	}

	w.check.checkBraked(first)
	w.quiet = time.Now()

	return w.awaitRest(ctx)
}

// noteBrakedSender records the sender of a message that the CMS rejects.
func (c *checker) noteBrakedSender(r *request) {
	if n, err := numberOf(r.body); err == nil && c.w.braking.rejects(n) {
		c.w.braking.senders[r.p] = true
	}
}

// checkBraked checks that no process has let more messages die than the brake allows.
func (c *checker) checkBraked(first int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dead, limit := 0, c.w.braking.limit*len(c.w.braking.senders)
	for i := first; i < first+rejectedAlike; i++ {
		if f := c.filedAs(i); f != nil && c.stageOf(f) == weir.Dead {
			dead++
		}
	}

	c.counts.Braked += rejectedAlike - dead
	if dead > limit {
		c.addViolation("mass",
			"%d messages are dead of the same rejection, want %d at most: %d of each process", dead,
			limit, c.w.braking.limit)
	}
}
