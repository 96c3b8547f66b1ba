package drain

import (
	"context"
	"time"

	"weir/internal/lane"
)

const (
	// lingerMin and lingerMax bound how long a holder stays at an empty lane: another instance may append a message,
	// and cannot wake this process.
	lingerMin = 2 * time.Second
	lingerMax = 3 * time.Second
	// lingerLook is the time between two reads of the control rows while the holder lingers.
	lingerLook = 500 * time.Millisecond
)

// chooseNext returns the next message that may be sent; nil if there is none now. If no message that was read may be
// sent, it waits for a read of the log that is under way.
func (s *session) chooseNext(ctx context.Context) (*candidate, error) {
	for {
		if s.waiter.takeWake() {
			s.readAhead.onWake()
		}
		s.readAhead.isCautious = s.attempter.guard.isCautious()
		if err := s.readOn(ctx); err != nil {
			return nil, err
		}
		if c, err := s.selector.pickNext(ctx); c != nil || err != nil {
			return c, err
		}
		if s.journal.isFull() {
			s.readAhead.startFarRead(ctx)
			return nil, nil
		}
		if s.readAhead.reading != nil {
			s.journal.flushAll() // the session is idle meanwhile
		}
		if waited, err := s.awaitPage(ctx); waited && err == nil {
			continue
		} else if err != nil {
			return nil, err
		}
		if again, err := s.beginRound(ctx); !again || err != nil {
			return nil, err
		}
	}
}

// readOn reads on in the log. It reads to the end of the log if the CMS refuses one message after the other.
func (s *session) readOn(ctx context.Context) error {
	if err := s.readAhead.fillUp(ctx); err != nil || !s.breaker.wantsWholeLog() {
		return err
	}
	return s.readToEnd(ctx)
}

// readToEnd reads on to the end of the log, as far as memory allows, without bodies. Refused messages stay in the
// read-ahead, and the CMS may take a message after them.
func (s *session) readToEnd(ctx context.Context) error {
	for !s.readAhead.isComplete() {
		s.readAhead.dropBodies()
		s.readAhead.startFarRead(ctx)
		if _, err := s.awaitPage(ctx); err != nil {
			return err
		}
	}
	return nil
}

// beginRound begins the next round (see prober.go) if each key had its turn, and reports whether the session is to
// choose again. Messages that were not read yet have their turn first. If a message without an attempt becomes due
// soon, the holder waits for that message, and begins no round. Otherwise it would leave the lane in the pause before
// the round, and take the lane again at once.
func (s *session) beginRound(ctx context.Context) (bool, error) {
	hasProbed := len(s.breaker.probedKeys) > 0 || s.breaker.isResting(s.now())
	if !hasProbed || s.journal.countPending() > 0 || s.due.isUnderWay() {
		return false, nil
	}
	if !s.readAhead.isComplete() {
		return true, s.readToEnd(ctx)
	}
	if s.isSoon(s.nextUntriedAt()) {
		return false, nil
	}
	return s.prober.beginRound(), nil
}

// waitForWork waits if no message can be chosen, and reports whether to go on.
func (s *session) waitForWork(ctx context.Context) (bool, error) {
	if s.opensAt(s.now()).After(s.now()) {
		return true, nil // the lane pauses, because each key had its turn; run waits
	}
	if n := s.journal.countPending(); n > 0 {
		// Keys may be pending, and an idle holder commits at once.
		return true, s.awaitCommit(ctx, n)
	}
	return s.linger(ctx)
}

// awaitCommit waits for the next commit, for a message that becomes due, or for news. It returns at once if fewer than
// n changes are uncommitted.
func (s *session) awaitCommit(ctx context.Context, n int) error {
	progress, err := s.journal.flushDown(n)
	if progress == nil {
		return err
	}
	due, stop := s.waiter.startTimer(s.nextWakeAt())
	defer stop()
	select {
	case <-progress:
	case <-s.waiter.news:
	case <-due:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// awaitPage waits for a read of the log that is under way, for a message that becomes due, or for news. It returns
// false if no read is under way, and false and an error if ctx ends.
func (s *session) awaitPage(ctx context.Context) (bool, error) {
	if s.readAhead.reading == nil {
		return false, nil
	}
	due, stop := s.waiter.startTimer(s.nextWakeAt())
	defer stop()
	select {
	case p := <-s.readAhead.reading:
		return true, s.readAhead.mergePage(p)
	case <-s.waiter.news:
	case <-due:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return true, s.due.advance(ctx)
}

// linger waits a while at an empty lane, and reports whether work has come.
func (s *session) linger(ctx context.Context) (bool, error) {
	until := s.now().Add(lingerMin + s.drainer.drawJitter(lingerMax-lingerMin))
	if s.due.isSealed {
		until = s.now() // a sealed lane gets no more messages
	}
	for s.now().Before(until) || s.isDueSoon() {
		if err := s.prefetchRetry(ctx); err != nil {
			return false, err
		}
		if hasWork := s.pollControl(ctx, lingerLook); hasWork {
			return true, nil
		}
		answers := s.due.moves.answers
		if err := s.due.advance(ctx); err != nil {
			return false, err
		}
		if s.due.moves.answers != answers {
			return true, nil // a message may have waited for that answer
		}
		step := lingerLook
		if at := s.nextWakeAt(); !at.IsZero() {
			step = min(step, at.Sub(s.now()))
		}
		if woken := step > 0 && s.waiter.sleepOrWake(ctx, step); woken {
			s.readAhead.onWake()
			return true, nil
		}
		if ctx.Err() != nil || s.tenure.open.Err() != nil {
			return false, context.Cause(ctx)
		}
		if at := s.nextWakeAt(); !at.IsZero() && !at.After(s.now()) {
			return true, nil
		}
	}
	return false, nil
}

// prefetchRetry fetches the message of the next retry. The session waits for that read, so prefetchRetry begins it only
// if there is time for it before a message is to be sent.
func (s *session) prefetchRetry(ctx context.Context) error {
	if at := s.nextWakeAt(); !at.IsZero() && at.Before(s.now().Add(s.drainer.leadTime.current())) {
		return nil
	}
	return s.selector.prefetchRetry(ctx)
}

// isDueSoon reports whether a message becomes due within lane.DueLead. Then the holder stays, because otherwise it
// would have to take the lane again at once.
func (s *session) isDueSoon() bool { return s.isSoon(s.nextDueAt()) }

func (s *session) isSoon(at time.Time) bool { return !at.IsZero() && at.Sub(s.now()) <= lane.DueLead }
