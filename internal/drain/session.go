package drain

import (
	"cmp"
	"context"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// closeTimeout bounds the last commit of a session. It also bounds the enqueueing of a ticket after
// the session. Both steps run even if the contexts of the session have ended.
const closeTimeout = 5 * time.Second

// session is one holder's time with a lane, from the raised fence to the hand-over. It owns its
// parts and connects them. Only one goroutine calls its methods. Other goroutines commit, read from
// storage, and send the request to the CMS.
type session struct {
	laneScope
	timetable // has the selector and the dueMover
	drainer   *Drainer
	tenure    *tenure
	waiter    *waiter
	journal   *journal

	readAhead *readAhead
	keys      *keyStates
	pauses    *operatorPauses
	breaker   *breaker

	control   *controlRefresh
	requests  *requestHandler
	prober    *prober
	attempter *attempter
	outcomes  *outcomeRecorder
	missing   *missingContracts
	slots     slotQueue
	braked    *brakedMessages

	isLoaded     bool   // load has succeeded, so saveProgress saves correct values
	interruption string // see recordInterruption; empty = storage has not ended the session
}

// newSession returns a session with connected parts. It reads nothing from storage.
func newSession(t *laneWorker, scope laneScope, of *tenure, c *committer, tail lane.Tail,
	isTrusted func() bool,
) *session {
	d := t.drainer
	s := &session{laneScope: scope, drainer: d, tenure: of, breaker: t.breaker,
		pauses: &operatorPauses{}, keys: newKeyStates(scope.now, d.Backoff)}
	s.keys.memory = d.memory
	s.waiter = &waiter{now: scope.now, wake: t.wake, news: newSignal(), open: of.open}
	s.slots = d.newSlotQueue(s.waiter.news.send)
	s.journal = &journal{committer: c, saveProgress: s.saveProgress}
	s.control = &controlRefresh{laneScope: scope, waiter: s.waiter}
	s.due = &dueMover{laneScope: scope, journal: s.journal, keys: s.keys, lead: &d.leadTime,
		positions: &duePositions{laneScope: scope}, applyControl: s.applyControl,
		notify: s.waiter.news.send}
	s.readAhead = &readAhead{store: scope.store, lane: scope.lane, appends: t.appends,
		memory: d.memory, nextRead: tail.Cursor, dues: &s.due.cache}
	versions := &latestVersions{store: scope.store, lane: scope.lane,
		byKey: map[string]lane.LatestVersion{}}
	remembered := &rememberedIDs{laneScope: scope, isUsedBy: d.Remembers,
		byKey: map[string]lane.Remembered{}}
	s.missing = &missingContracts{laneScope: scope, patience: cmp.Or(d.Patience, patienceDefault)}
	s.braked = &brakedMessages{laneScope: scope, brakes: d.brakes, keys: s.keys, journal: s.journal,
		generation: d.brakes.readGeneration(), wakeOthers: func() { d.wakeOthers(t.number, (*laneWorker).mayBeBraked) }}
	guard := &crashGuard{journal: s.journal}
	history := &deliveryHistory{laneScope: scope}
	s.requests = &requestHandler{laneScope: scope, journal: s.journal, readAhead: s.readAhead,
		keys:    s.keys,
		breaker: s.breaker, braked: s.braked, guard: guard, history: history, versions: versions,
		ids: remembered, due: s.due}

	s.selector = &selector{laneScope: scope, journal: s.journal, readAhead: s.readAhead,
		keys:   s.keys,
		pauses: s.pauses, breaker: s.breaker, due: s.due, versions: versions, missing: s.missing}
	s.prober = &prober{laneScope: scope, journal: s.journal, readAhead: s.readAhead, keys: s.keys,
		breaker: s.breaker, due: s.due, retryFor: d.retryFor, braked: s.braked,
		recovered: func(r lane.Recovery) { d.announceRecovery(t.number, r) },
		deferred:  map[string]time.Time{}}

	s.attempter = &attempter{laneScope: scope, drainer: d, guard: guard, history: history,
		prefetch: &bodyPrefetch{store: scope.store, room: d.prefetchRoom},
		patience: t.breaker.patience, leastTime: leastTime{d.retryFor},
		remembered: remembered, missing: s.missing, slots: s.slots, isTrusted: isTrusted,
		host: s}

	s.outcomes = &outcomeRecorder{laneScope: scope, attempts: d.Attempts,
		leastTime: leastTime{d.retryFor}, braked: s.braked,
		backoff: d.Backoff, journal: s.journal, readAhead: s.readAhead, keys: s.keys,
		breaker: s.breaker,
		guard:   guard, history: history, versions: versions, remembered: remembered}

	return s
}

// load takes over the former holder's state from tail. It reads the blocks, and the keys with dead
// messages.
func (s *session) load(ctx context.Context, t lane.Tail, hasCrashed bool) error {
	s.breaker.adoptTail(t, s.now())

	// begin at the log's end: former sessions tried its beginning
	s.selector.isFromEnd = s.breaker.alternateFor > 0
	if hasCrashed {
		s.breaker.beginSettling(s.now())
	}

	s.due.cache.nextAt, s.due.positions.sentBelow, s.keys.lastReleasedAt = t.NextDueAt, t.SentBelow,
		t.LastReleasedAt
	s.requests.seen, s.requests.handled = t.RequestsSeen, t.RequestsSeen
	if s.attempter.guard.adoptTail(t) {
		s.log.Warn("drain: running carefully after crashes", "fence", t.Fence)
	}

	s.drainer.brakes.adoptStored(t.Brakes)

	if !t.NextDueAt.IsZero() { // zero = no message is held or scheduled
		blocks, err := s.store.DeliveryState().ReadBlocks(ctx, s.lane)
		if err != nil {
			return err
		}
		s.keys.loadBlocks(blocks, s.missing.adopt, s.braked.adoptBlock)
	}

	if err := s.loadUnsent(ctx, t); err != nil {
		return err
	}

	if err := s.attempter.history.loadTracked(ctx, t); err != nil {
		return err
	}

	s.isLoaded = true

	return nil
}

// loadUnsent finds the log messages that the former holder passed over, because the messages of
// their keys waited for a due one. Otherwise the due message would get a position behind them, and
// would overwrite their newer content.
func (s *session) loadUnsent(ctx context.Context, t lane.Tail) error {
	if t.NextDueAt.IsZero() || t.NextDueAt.After(s.now()) {
		return nil
	}

	for seq := t.Cursor; seq < t.SentBelow; {
		entries, err := s.store.ScanLog(ctx, s.lane, seq, int(min(farRows, t.SentBelow-seq)))
		if err != nil {
			return err
		}

		if len(entries) == 0 {
			return nil // the read of the log reports the missing row
		}

		for _, e := range entries {
			if !e.Stage.Final() && !e.IsHeld && e.Stage != weir.Scheduled {
				s.due.positions.addUnsent(e)
			}
		}
		seq = entries[len(entries)-1].Seq() + 1
	}

	return nil
}

// run is the loop of a session: serve requests, move due messages, choose a message, send the
// message, record the outcome. It ends when the lane has no message to send, or pauses for more
// than lingerMax. It also ends with ctx, with the tenure, or after an error.
func (s *session) run(ctx context.Context) error {
	defer s.attempter.prefetch.forgetAll()
	defer s.slots.leaveQueue()
	for ctx.Err() == nil && s.tenure.open.Err() == nil {
		if err := s.serveRequests(ctx); err != nil {
			return err
		}

		if wait, isLong := s.untilOpen(); isLong {
			return nil
		} else if wait > 0 {
			s.slots.leaveQueue()
			s.sleep(ctx, wait)
			continue
		}

		progress, sides := s.journal.nextProgress(), s.selector.alternation
		c, err := s.chooseNext(ctx)
		if err != nil {
			return err
		}

		if c == nil {
			s.slots.leaveQueue()
			if hasWork, err := s.waitForWork(ctx, progress); err != nil || !hasWork {
				return err
			}
			continue
		}

		// Until shortly before the slot of the message, the holder serves requests and pauses, and may choose
		// another message. A choice without an attempt does not change sides: with two choices for
		// each attempt, one side would be sent alone.
		if wait := s.slots.untilReady(c.entry); wait > 0 {
			s.selector.alternation = sides
			s.sleep(ctx, min(wait, controlInterval))
			continue
		}

		if err := s.attempt(ctx, c); err != nil {
			return err
		}
	}

	return context.Cause(ctx)
}

// serveRequests applies control rows, handles requests, and moves due messages.
func (s *session) serveRequests(ctx context.Context) error {
	s.pollControl(ctx, controlInterval)
	if err := s.requests.handleNew(ctx); err != nil {
		return err
	}
	s.braked.releaseOpened()
	return s.due.advance(ctx)
}

// untilOpen returns how long the session waits, at most, before it chooses a message. It may have
// to wait for the end of a pause, or for a read of due times. isLong means that the pause is so long
// that the holder leaves the lane.
func (s *session) untilOpen() (wait time.Duration, isLong bool) {
	if s.due.hasToReadFirst() {
		return controlInterval, false
	}

	now := s.now()
	if s.breaker.isResting(now) && s.isSoon(s.nextUntriedAt()) {
		s.breaker.letUntriedPass(now)
	}

	if wait := s.opensAt(now).Sub(now); wait > 0 {
		return wait, wait > lingerMax
	}

	return 0, false
}

// opensAt returns the time at which pauses, the settle time and the calendar will all allow
// messages. If they allow messages already, opensAt returns now.
func (s *session) opensAt(now time.Time) time.Time {
	return s.drainer.calendarOpensAt(clock.Later(s.breaker.closedUntil(),
		clock.Later(s.pauses.laneUntil, now)))
}

// sleep waits for the given time. It ends earlier if a move has to begin, or if news comes (see
// waiter).
func (s *session) sleep(ctx context.Context, wait time.Duration) {
	s.journal.flushAll()
	if at := s.due.nextReadAt(); !at.IsZero() {
		wait = min(wait, at.Sub(s.now()))
	}
	s.waiter.sleep(ctx, wait, nil, s.waiter.news)
}

// attempt sends a message, and records the outcome.
func (s *session) attempt(ctx context.Context, c *candidate) error {
	if err := s.journal.waitBelow(ctx, maxUncommitted); err != nil {
		return err
	}

	guard := s.attempter.guard
	if err := guard.recordInFlight(ctx, c.entry.Seq()); err != nil {
		return err
	}

	var next []*lane.Entry
	if !guard.isCautious() {
		next = s.selector.guessNext(c)
	}

	s.attempter.prefetch.prefetchAll(ctx, next)
	s.due.positions.recordSending(c.entry, s.due.hasDue())
	result, err := s.attempter.sendMessage(ctx, c)
	if err != nil {
		return err
	}

	return s.outcomes.recordOutcome(ctx, c, result, s.prober.classifyResult(c, result))
}

// canSend reports whether a message that was chosen can still be sent: no pause has begun, and the
// session goes on. It first waits until the pauses in memory are recent enough.
func (s *session) canSend(ctx context.Context, e *lane.Entry) (bool, error) {
	for s.pauses.isOutdated(s.now()) {
		if c, isRead := s.control.await(ctx); isRead {
			s.due.positions.limitSent(c)
			s.applyControl(c, s.control.askedAt)
		}

		if err := context.Cause(ctx); err != nil || s.tenure.open.Err() != nil {
			return false, err
		}
	}

	now := s.now()
	return !s.opensAt(now).After(now) && !s.pauses.isKeyPaused(e.KeyHash(), now), nil
}

// slowAttempt is the time after which operators can see an attempt that is under way. Each such
// attempt costs a commit.
const slowAttempt = 5 * time.Second

// moveDueUntil moves due messages of other keys until the request to the CMS has its result. The
// request sends the message e.
func (s *session) moveDueUntil(ctx context.Context, e *lane.Entry,
	sent <-chan weir.Result) weir.Result {
	s.due.sendingKey = e.KeyHash()
	defer func() { s.due.sendingKey = "" }()
	began, slow := s.now(), time.NewTimer(slowAttempt)
	defer slow.Stop()

	for {
		// an error is ignored here: serveRequests gets it again later, and returns it
		s.due.advance(ctx)
		next, stop := s.waiter.startTimer(s.due.nextReadAt())
		select {
		case result := <-sent:
			stop()
			s.due.advance(ctx)
			return result

		case <-slow.C:
			s.reportSlowAttempt(e, began)
		case <-s.waiter.news:
		case <-next:
		}

		stop()
	}
}

// reportSlowAttempt writes into tail, and logs, that an attempt is under way that takes long. The
// outcome of the attempt, or the hand-over, removes it from tail.
func (s *session) reportSlowAttempt(e *lane.Entry, began time.Time) {
	id, since := e.Message.Public().String(), storedTime(began)
	s.log.Info("drain: attempt under way", "message_id", id, "seq", e.Seq(), "fence",
		s.fence, "attempt", e.AttemptCount+1, "duration_ms", s.now().Sub(began).Milliseconds())
	ch := &lane.Change{}
	ch.UpdateTail(func(t *lane.Tail) { t.AttemptingID, t.AttemptingSince = id, since })
	s.journal.addChange(ch, true)
}

// forgetSlowAttempt records that no attempt is under way.
func forgetSlowAttempt(t *lane.Tail) { t.AttemptingID, t.AttemptingSince = "", time.Time{} }

// pollControl applies the control rows of a finished read, and reports whether they show work. If
// no read is under way, and the last read began longer than minAge ago, pollControl begins a read.
func (s *session) pollControl(ctx context.Context, minAge time.Duration) (hasWork bool) {
	c, isRead, hasEnded := s.control.pollControl(ctx, minAge)
	if isRead {
		s.due.positions.limitSent(c)
		s.applyControl(c, s.control.askedAt)
	}
	return hasEnded && (isRead && c.Head.Next > s.readAhead.nextRead || s.requests.hasNew())
}

// applyControl takes over control rows: claims, pauses, the request number, the seal, and whether
// the log has unread messages. askedAt is the time at which the read of the rows began.
func (s *session) applyControl(c lane.Control, askedAt time.Time) {
	switch {
	case !s.drainer.yieldsTo(c):
		s.tenure.claimedAt = time.Time{}
	case s.canMoveLane():
		s.tenure.end()
	}

	if askedAt.Before(s.pauses.askedAt) || c.Head.RequestSeq < s.requests.handled {
		// A later read was applied already: by this session, or by a former holder, which saved the
		// request number of that read in tail. So the pauses in c may be outdated. The session
		// saves the time of its next work in tail; with outdated pauses this time could be too
		// late.
		return
	}

	s.pauses.replaceWith(c, askedAt)
	s.control.lastSeenAt = s.now()
	s.readAhead.knownEnd = max(s.readAhead.knownEnd, c.Head.Next)
	if c.Head.Next > s.readAhead.nextRead {
		s.readAhead.markMore()
	}

	s.requests.seen = max(s.requests.seen, c.Head.RequestSeq)
	s.due.isSealed = c.Head.IsSealed
}

// recordInterruption makes the hand-over write the error of storage that has ended the session into
// tail, for operators.
func (s *session) recordInterruption(err error) {
	s.interruption = "the holder was interrupted: storage: " + storage.Describe(err)
}

// handOver commits all decisions, and writes the state for the next holder into tail. It does so
// even if ctx has ended.
func (s *session) handOver(ctx context.Context, stopCommits context.CancelFunc) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	s.journal.addChange(s.buildHandOver(), true)
	err := s.journal.closeInOrder(limited)
	stopCommits()
	<-s.journal.done
	return err
}

// buildHandOver builds the last change of a session.
func (s *session) buildHandOver() *lane.Change {
	ch := &lane.Change{}
	if s.isLoaded {
		s.missing.countedAt, s.braked.countedAt = time.Time{}, time.Time{}
		s.saveProgress(ch)
	}

	ch.UpdateTail(s.attempter.guard.recordHandOver)
	ch.UpdateTail(forgetSlowAttempt)
	if text, at := s.interruption, storedTime(s.now()); text != "" {
		ch.UpdateTail(func(t *lane.Tail) { t.LastError, t.LastErrorAt = text, at })
	}

	return ch
}

// saveProgress adds to a change the state for the next holder: the cursor, the next times of work,
// and the breaker's state.
func (s *session) saveProgress(ch *lane.Change) {
	cursor, due, untried, handled := s.readAhead.cursorSeq(), s.nextDueAt(), s.nextUntriedAt(),
		s.requests.handled
	releasedAt, sentBelow := s.keys.lastReleasedAt, s.due.positions.sentBelowAll()
	breaker, missing, brakes := *s.breaker, s.missing.list(s.keys), s.braked.listWaiting()

	ch.UpdateTail(func(t *lane.Tail) {
		t.Cursor, t.NextDueAt, t.NextUntriedAt, t.RequestsSeen = cursor, due, untried, handled
		t.LastReleasedAt, t.SentBelow, t.Missing, t.Brakes = releasedAt, sentBelow, missing, brakes
		breaker.saveTo(t)
	})
}
