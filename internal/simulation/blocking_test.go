package simulation_test

import (
	"bytes"
	"compress/flate"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// When the faults are over and all lanes are idle, the upstreams of some seeds post one message
// that can never be delivered (the blocker): storage never returns its body, or the CMS seems to be
// away for its request. Some time later the upstreams post messages of other keys. The blocker must
// not hold them up, and must become dead.

// blockingKind is the reason why a blocker cannot be delivered.
type blockingKind string

const (
	bodyUnreadable  blockingKind = "storage refuses to return its body"
	bodyDenied      blockingKind = "storage denies the read of its body"
	bodyUnavailable blockingKind = "storage does not answer the read of its body"
	bodyThrottled   blockingKind = "storage throttles the read of its body"
	bodyDamaged     blockingKind = "its body is damaged"
	noConnection    blockingKind = "its request gets no connection"
	redirected      blockingKind = "the CMS redirects its request"
	notSignedIn     blockingKind = "the CMS answers 401 to its request"
	busyFor         blockingKind = "the CMS answers 503 to its request"
)

var (
	bodyKinds = []blockingKind{bodyUnreadable, bodyDenied, bodyUnavailable, bodyThrottled,
		bodyDamaged}
	blockingKinds = slices.Concat(bodyKinds,
		[]blockingKind{noConnection, redirected, notSignedIn, busyFor})
)

const (
	// heldUpAtMost is the time within which the messages behind a blocker must be delivered,
	// without the time that a rate takes; see heldUpLimit.
	heldUpAtMost = 10 * time.Second
	// behindBlocker is the number of the messages behind a blocker.
	behindBlocker = 8
)

// drawBlocking draws whether a seed has a blocker. A seed with backoff.Steps has none, because its
// blocker would become final only after many hours.
func (s *settings) drawBlocking(d *dice) {
	if len(s.backoff.Steps) == 0 && d.drawChance("blocker", 0.25) {
		s.blocking = blockingKinds[d.drawBelow("blocker", len(blockingKinds))]
		s.blockedFor = d.drawBetween("behind blocker", 0, time.Minute)
	}
}

// blocker returns the number of the blocker's submission.
func (w *world) blocker() int {
	if w.refused == 0 {
		return w.firstRefused()
	}
	return w.firstRefused() + w.refused + others
}

// fileBlocker posts the blocker and, some time later, messages of other keys. It reports whether
// all work is done afterwards.
func (w *world) fileBlocker(ctx context.Context) bool {
	if w.blocking == "" {
		return true
	}

	for left := w.check.undisturbedFor(); left > 0; left = w.check.undisturbedFor() {
		time.Sleep(left)
	}

	number := w.blocker()
	large := w.large
	w.large = 1
	w.fileAll(ctx, number, 1, "blocker")
	w.large = large
	time.Sleep(w.blockedFor)
	w.fileAll(ctx, number+1, behindBlocker, "behind")

	for end := time.Now().Add(w.heldUpLimit()); time.Now().Before(end) &&
		!w.check.isAllTaken(number+1, behindBlocker); {
		time.Sleep(50 * time.Millisecond)
	}

	w.check.checkHeldUp(number)

	// the blocker may become final only after delivery.patience
	w.quiet = time.Now().Add(w.patience)

	return w.awaitRest(ctx)
}

// heldUpLimit returns the time within which the messages behind a blocker must be delivered. With a
// rate, two attempts of the blocker can come before each of these messages.
func (w *world) heldUpLimit() time.Duration { return heldUpAtMost }

// checkHeldUp checks that the CMS has taken the messages that were posted after the blocker with
// this number.
func (c *checker) checkHeldUp(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := number + 1; i <= number+behindBlocker; i++ {
		if f := c.filedAs(i); f != nil && !f.taken {
			c.addViolation("held up",
				"seq %d of lane %d, key %s, waits longer than %s behind a message of another key: %s",
				f.id.Seq, f.id.Lane, f.key, c.w.heldUpLimit(), c.w.blocking)
		}
	}

	c.counts.Blockers++
}

// checkBlocker checks that the blocker is dead at the end of the run. If storage does not return
// its body, it can also be delivered: the process that appended it had the body in memory.
func (c *checker) checkBlocker() {
	if c.w.blocking == "" || c.first != nil {
		return
	}

	f := c.filedAs(c.w.blocker())
	if f != nil && c.stageOf(f) != weir.Dead &&
		!(f.taken && slices.Contains(bodyKinds, c.w.blocking)) {
		c.addViolation("held up",
			"seq %d of lane %d is %s in the end, although it cannot be delivered: %s", f.id.Seq,
			f.id.Lane, c.stageOf(f), c.w.blocking)
	}
}

// readBlocker returns the answer of storage to the read of a blob: the blob, or a failure if the
// blob has the body of the blocker.
func (w *world) readBlocker(name string, data []byte, err error) ([]byte, error) {
	if w.blocking == "" || err != nil || !w.bodies.isOf(name, data, w.blocker()) {
		return data, err
	}

	refuse := func(kind storage.Kind) ([]byte, error) {
		return nil, &storage.Error{Op: "blob get", Kind: kind, Index: -1, Err: errFault}
	}

	switch w.blocking {
	case bodyUnreadable:
		return refuse(storage.Unreadable)
	case bodyDenied:
		return refuse(storage.Denied)
	case bodyUnavailable:
		return refuse(storage.Unavailable)
	case bodyThrottled:
		return refuse(storage.Throttled)
	case bodyDamaged:
		return data[:len(data)/2], nil
	}

	return data, nil
}

// planBlocker returns the reaction of the CMS to the blocker's request.
func (k blockingKind) planBlocker(p plan) plan {
	switch k {
	case noConnection:
		p.refuse = true
	case redirected:
		p.status = 302
	case notSignedIn:
		p.status = 401
	case busyFor:
		p.status = 503
	}

	return p
}

// knownBodies has the submission's number of each blob that was read.
type knownBodies struct {
	mu      sync.Mutex
	numbers map[string]int
}

// isOf reports whether a blob has the body of a submission.
func (k *knownBodies) isOf(name string, data []byte, number int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	if _, isKnown := k.numbers[name]; !isKnown {
		if k.numbers == nil {
			k.numbers = map[string]int{}
		}

		k.numbers[name] = -1
		head := make([]byte, 40)
		n, _ := io.ReadFull(flate.NewReader(bytes.NewReader(data)), head)
		if found, err := numberOf(string(head[:n])); err == nil {
			k.numbers[name] = found
		}
	}

	return k.numbers[name] == number
}
