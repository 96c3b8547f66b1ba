package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// lingerMin and lingerMax bound how long a holder stays at an empty lane (lingers).
	lingerMin = 2 * time.Second
	lingerMax = 3 * time.Second
	// lingerLook is the time between two reads of the control rows while the holder lingers. The
	// reads show messages that other processes appended. Those processes cannot wake the holder.
	lingerLook = 500 * time.Millisecond
	// closeLook is that time for closeLooksFor after a message of another process: more of them are
	// likely to come.
	closeLook     = 50 * time.Millisecond
	closeLooksFor = 3 * time.Second
)

// chooseNext returns a message that can be sent now; nil if there is none. If none of the messages
// in memory can be sent, chooseNext waits for the read of the log that is under way.
func (s *session) chooseNext(ctx context.Context) (*candidate, error) {
	for {
		if s.waiter.wake.take() {
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
			s.journal.flushAll() // the session sends nothing until the read ends
		}

		if waited, err := s.awaitPage(ctx); waited && err == nil {
			continue
		} else if err != nil {
			return nil, err
		}

		if mustChoose, err := s.beginRound(ctx); !mustChoose || err != nil {
			return nil, err
		}
	}
}

// readOn reads the next messages of the log. If the CMS refuses one message after the other, readOn
// reads to the end of the log.
func (s *session) readOn(ctx context.Context) error {
	if err := s.readAhead.fillUp(ctx); err != nil || !s.breaker.wantsWholeLog() {
		return err
	}
	return s.readToEnd(ctx)
}

// readToEnd reads the log to its end, without bodies, as far as memory allows. The CMS may take a
// message that comes later in the log than the refused messages.
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

// beginRound begins the next round of attempts (see breaker.go) if each key had its turn. It
// reports whether the session must choose a message again. Messages that were not read yet come
// before the next round.
//
// If an untried message becomes due soon, beginRound begins no round and no pause. The pause could
// be long. In a long pause the holder leaves the lane, and a process would soon have to take the
// lane again for the untried message.
func (s *session) beginRound(ctx context.Context) (mustChoose bool, err error) {
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

// waitForWork is called when no message can be sent. It waits, and reports whether the session
// continues. The channel progress is closed if a change was committed since the choice began
// (committer.nextProgress).
//
// A message, or the next round, may have to wait for the commit of an earlier outcome. If that
// commit ends while the holder chooses, the choice was made too early, and a new choice is needed:
// no timer and no wake would end the wait.
func (s *session) waitForWork(ctx context.Context, progress <-chan struct{}) (continues bool,
	err error) {
	if s.opensAt(s.now()).After(s.now()) {
		return true, nil // the lane pauses, and run waits for the end of the pause
	}

	if n := s.journal.countPending(); n > 0 {
		return true, s.awaitCommit(ctx, n)
	}

	// countPending comes before this check, so that a commit between the two is seen by one of
	// them.
	select {
	case <-progress:
		return true, nil
	default:
		return s.linger(ctx)
	}
}

// awaitCommit waits for the next commit, for a message that becomes due, or for news. News means
// that another goroutine has ended a read, or a write that moves due messages. awaitCommit returns
// at once if fewer than n changes are uncommitted.
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

// awaitPage waits until the read of the log ends, a message becomes due, or news comes (see
// awaitCommit). It returns false if no read was under way. If ctx ends, it returns false and an
// error.
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

// linger waits for lingerMin to lingerMax at an empty lane, and reports whether work has come. It
// waits longer if a message becomes due soon.
func (s *session) linger(ctx context.Context) (bool, error) {
	until := s.now().Add(lingerMin + s.drainer.drawJitter(lingerMax-lingerMin))
	if s.due.isSealed {
		until = s.now() // a sealed lane gets no more messages
	}

	for s.now().Before(until) || s.isSoon(s.nextDueAt()) {
		if err := s.prefetchRetry(ctx); err != nil {
			return false, err
		}

		look := s.lookInterval()
		if hasWork := s.pollControl(ctx, look); hasWork {
			return true, nil
		}

		answers := s.due.moves.answers
		if err := s.due.advance(ctx); err != nil {
			return false, err
		}

		if s.due.moves.answers != answers {
			// a step of a move has ended, and a message may have waited for this step
			return true, nil
		}

		step := look
		if at := s.nextWakeAt(); !at.IsZero() {
			step = min(step, at.Sub(s.now()))
		}

		if woken := step > 0 && s.waiter.sleep(ctx, step, s.waiter.wake, s.waiter.news); woken {
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

// lookInterval returns the time between two reads of the control rows while the holder lingers.
func (s *session) lookInterval() time.Duration {
	if s.now().Sub(s.readAhead.appends.foreignSeenAt()) < closeLooksFor {
		return closeLook
	}
	return lingerLook
}

// prefetchRetry reads the message of the next retry. It does not begin the read if a message has to
// be sent so soon that the read could delay that message.
func (s *session) prefetchRetry(ctx context.Context) error {
	if at := s.nextWakeAt(); !at.IsZero() && at.Before(s.now().Add(s.drainer.leadTime.current())) {
		return nil
	}
	return s.selector.prefetchRetry(ctx)
}

// signal tells one goroutine that something has happened. Several signals that the goroutine has
// not taken yet count as one.
type signal chan struct{}

func newSignal() signal { return make(chan struct{}, 1) }

// send is safe for concurrent use, and returns at once.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// take reports whether a signal has come that was not taken yet.
func (s signal) take() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// waiter lets a session wait for news and for wakes. News means that another goroutine has ended a
// read, or a write that moves due messages. A wake means that the lane may have work.
type waiter struct {
	now func() time.Time
	// gets a wake when a message was appended, or a ticket or the sweep has come
	wake signal
	news signal
	open context.Context // ends when the session must not begin another request
}

// startTimer returns a channel that gets a value at the given time. The channel is nil if the time
// is zero or past.
func (w *waiter) startTimer(at time.Time) (reached <-chan time.Time, stop func()) {
	if wait := at.Sub(w.now()); !at.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		return timer.C, func() { timer.Stop() }
	}
	return nil, func() {}
}

// sleep waits until d has passed or the session ends, or until one of the signals comes: wake, of
// which it reports whether it came, or news. A signal that is nil does not end the wait.
func (w *waiter) sleep(ctx context.Context, d time.Duration, wake, news signal) (woken bool) {
	if wake.take() {
		return true
	}

	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-wake:
		return true
	case <-news:
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}

	return false
}

const (
	// controlInterval is the time between two reads of the control rows while the holder has work.
	// The rows show requests, pauses, claims, and whether other instances have appended messages.
	controlInterval = time.Second
	// controlRetry is the pause of await after a failed read.
	controlRetry = 200 * time.Millisecond
)

// controlRefresh reads the control rows while messages are sent. A failed read does no harm:
// another read follows soon, and a commit fails if the lane has another holder.
type controlRefresh struct {
	laneScope
	waiter  *waiter
	answer  chan lane.Control // gets the rows of the read under way; nil = no read is under way
	askedAt time.Time         // when the last read began
	// when a read last began, or control rows were last applied, whichever is later
	lastSeenAt time.Time
}

// pollControl returns the result of the read under way, but does not wait for it. hasEnded reports
// whether the read has ended. isRead reports whether it succeeded, so that c has its rows. If no
// read is under way, pollControl returns nothing; it then begins a read if lastSeenAt is at least
// minAge ago.
func (r *controlRefresh) pollControl(ctx context.Context,
	minAge time.Duration) (c lane.Control, isRead, hasEnded bool) {
	if r.answer == nil {
		if r.now().Sub(r.lastSeenAt) >= minAge {
			r.startRead(ctx)
		}
		return lane.Control{}, false, false
	}

	select {
	case c, isRead = <-r.answer:
		r.answer = nil
		return c, isRead, true
	default:
		return lane.Control{}, false, false
	}
}

// await waits for a read of the control rows. If the read fails, await then waits for controlRetry.
// isRead is false if the read failed or the session ends.
func (r *controlRefresh) await(ctx context.Context) (c lane.Control, isRead bool) {
	if r.answer == nil {
		r.startRead(ctx)
	}

	select {
	case c, isRead = <-r.answer:
		r.answer = nil
		if !isRead {
			// a failed read is news, too: if news ended the wait, a failing read would be repeated
			// without a pause
			r.waiter.sleep(ctx, controlRetry, nil, nil)
		}

	case <-r.waiter.open.Done():
	case <-ctx.Done():
	}

	return c, isRead
}

func (r *controlRefresh) startRead(ctx context.Context) {
	now := r.now()
	answer := make(chan lane.Control, 1)
	r.answer, r.askedAt, r.lastSeenAt = answer, now, now
	go func() {
		defer r.waiter.news.send()
		defer close(answer)
		defer panics.Log(r.log, "drain: read of the control rows")
		if c, err := r.store.ReadControl(ctx, r.lane); err == nil {
			answer <- c
		}
	}()
}
