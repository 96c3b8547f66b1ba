package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// candidate is the message that the holder sends next. It is from the log or from a block.
type candidate struct {
	entry      *lane.Entry
	block      *keyState       // nil if the message is from the log
	remembered lane.Remembered // the CMS's id of the key's item; zero = none is known
	// the CMS rejects the message, and the brake of the rejection is closed
	isBraked bool
	// position of the key's last recorded delivery; "" = none, or not read; see readLastPos
	lastPos string
}

// dueQueue is the part of dueMover that the selector uses.
type dueQueue interface {
	isShut(keyHash string) bool
	awaitsMove(e *lane.Entry) bool
	waitForMove(keyHash string)
	recordChoice(hasSendable bool)
}

// selector chooses the next message. It takes messages from the read-ahead and from the blocks in
// turn. It also parks messages of blocked and paused keys: it moves them from the log into their
// keys' queues.
type selector struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	pauses    *operatorPauses
	breaker   *breaker
	due       dueQueue
	versions  *latestVersions
	missing   *missingContracts

	alternation
}

// alternation has the sides of which the next choice takes its message.
type alternation struct {
	isLogNext bool // the next choice begins with the log, not with the blocks
	isFromEnd bool // while attempts fail: the next choice from the log begins at its end
}

// pickNext returns a message that can be sent now; nil if there is none. If the last chosen message
// was from a block, pickNext tries the log first. Otherwise it tries the blocks first. So while log
// messages are sent, a held message that becomes due is chosen next.
func (s *selector) pickNext(ctx context.Context) (c *candidate, err error) {
	first, second := s.pickHeld, s.pickFromLog
	if s.isLogNext {
		first, second = second, first
	}

	if c, err = first(ctx); c == nil && err == nil {
		c, err = second(ctx)
	}

	if c != nil {
		s.isLogNext = c.block != nil
	}

	return c, err
}

// pickFromLog returns the first message of the log that can be sent now, or a version that
// supersedes this message. While attempts fail, every second call that finds a message returns the
// last message of the log that can be sent now, not the first. So keys at the end of the log are
// tried, even if the CMS refuses many keys at its beginning.
func (s *selector) pickFromLog(ctx context.Context) (*candidate, error) {
	alternates := s.breaker.alternateFor > 0
	atEnd := alternates && s.isFromEnd
	waits := map[string]bool{} // keys whose newest version has to wait
	for {
		i := s.findSendable(atEnd, waits)
		if i < 0 {
			return nil, nil
		}

		e := s.readAhead.entries[i]
		if e.Message.Supersede {
			var err error
			if e, err = s.newestFrom(ctx, i); err != nil {
				return nil, err
			}
		}

		if e != nil && s.due.awaitsMove(e) {
			waits[e.KeyHash()] = true
			continue
		}

		if e != nil {
			s.isFromEnd = alternates && !atEnd
			return &candidate{entry: e}, nil
		}
	}
}

// findSendable returns the index in the read-ahead of the first message that can be sent now. If
// atEnd is true, it returns the index of the last such message. If there is no such message, it
// returns -1. It skips the keys in waits. It parks messages of blocked and paused keys, unless the
// journal is full.
func (s *selector) findSendable(atEnd bool, waits map[string]bool) int {
	passed := map[string]bool{} // keys with an earlier message that stays in the read-ahead
	ahead := s.keys.firstAhead()

	// The whole loop uses the same time. Otherwise a key's pause could end during the loop: then
	// the loop would park a message of the key, and choose a later message of the key.
	now := s.now()
	last := -1
	for i := 0; i < len(s.readAhead.entries); {
		e := s.readAhead.entries[i]
		key := e.KeyHash()
		block := s.keys.byID[key]
		switch {
		case passed[key]:
			i++
		case waits[key] || s.due.isShut(key) || s.due.awaitsMove(e):
			passed[key] = true
			i++
		case (block != nil || e.Message.Supersede || s.pauses.isKeyPaused(key, now) ||
			s.missing.isMissing(e)) &&
			s.journal.isFull():
			passed[key] = true
			i++

		case s.pauses.isKeyPaused(key, now):
			s.parkPaused(e)
		case ahead[key] != nil && 2*e.Seq() >= ahead[key].Rank():
			passed[key] = true
			i++
		case block != nil && e.Seq() >= block.firstLogPos:
			s.parkBehindBlock(e, block)
		case s.missing.isMissing(e):
			s.parkMissing(e)
		case s.breaker.probedKeys[key] || s.journal.isKeyPending(key) || s.breaker.hadTurn(e, now):
			passed[key] = true
			i++
		case atEnd:
			passed[key], last = true, i
			i++
		default:
			return i
		}
	}

	return last
}

// parkBehindBlock moves a message of a blocked key from the log into the block. If the message had
// its turn in this round (breaker.hadTurn), the block is no longer untried. If the block stayed
// untried, the message could be sent again before the next round.
func (s *selector) parkBehindBlock(e *lane.Entry, k *keyState) {
	s.readAhead.removeEntry(e)
	mayGoFirst := k.holdNext(s.breaker.hadTurn(e, s.now()))
	ch := &lane.Change{}
	ch.Hold(k.ID, e)
	ch.SaveBlock(k.KeyBlock)

	if mayGoFirst {
		// the key becomes pending, so the queue is not read before the change is written
		ch.Key = k.KeyHash
	}

	s.journal.record(ch, false)
}

// parkPaused moves a message of a paused key from the log into the key's block, so that other keys
// go on. If the key has no block, parkPaused opens a block. If the message has the setting
// "onFailure: skip", the new block is for this message alone.
func (s *selector) parkPaused(e *lane.Entry) {
	k := s.keys.byID[e.KeyHash()]
	if k == nil {
		k = s.openParked(e)
		k.waitUntil(s.keys.nextParkedAt())
	}
	s.parkInOrder(e, k)
}

// parkMissing moves a message whose contract is missing from the log into its key's block, so that
// other keys go on.
func (s *selector) parkMissing(e *lane.Entry) {
	k := s.keys.byID[e.KeyHash()]
	if k == nil {
		k = s.openParked(e)
		s.missing.hold(k, e)
	}
	s.parkInOrder(e, k)
}

// openParked opens the block of a message that is parked.
func (s *selector) openParked(e *lane.Entry) *keyState {
	k := newKeyState(e, true)
	if e.Message.Skip {
		// Retries of this message delay no other message. But later messages of the key wait for
		// the first attempt of this message.
		k.parkSingle(e.Seq())
	}

	s.keys.byID[k.ID] = k
	return k
}

// parkInOrder moves a message from the log into a block, in which later messages of its key may be
// held already.
func (s *selector) parkInOrder(e *lane.Entry, k *keyState) {
	// After the change is written, the holder reads the queue from storage, because isMixed is
	// true. In storage the queue has the right order.
	k.mixOrder()
	s.parkBehindBlock(e, k)
}

// pickHeld returns the first held message of a block whose time has come, or a version that
// supersedes that message.
func (s *selector) pickHeld(ctx context.Context) (c *candidate, err error) {
	defer func() { s.due.recordChoice(c != nil) }()
	for {
		now, ahead := s.now(), s.keys.firstAhead()
		isResting := s.breaker.isResting(now)
		k := s.keys.findDue(now, func(k *keyState) bool {
			return (k.IsUntried || !isResting) && !s.breaker.probedKeys[k.KeyHash] &&
				!s.journal.isKeyPending(k.KeyHash) &&
				!s.due.isShut(k.KeyHash) && !s.pauses.isKeyPaused(k.KeyHash, now) &&
				(!k.goesAhead() || ahead[k.KeyHash] == k) && s.isLogDone(k)
		})
		if k == nil {
			return nil, nil
		}

		e, err := s.readFirstHeld(ctx, k)
		if isQueueDamaged(err) {
			s.setAside(k, err)
			continue
		}

		if err != nil {
			return nil, fmt.Errorf("read held message: %w", err)
		}

		if e != nil && s.missing.isMissing(e) {
			if s.holdForContract(k, e) {
				continue
			}
			return &candidate{entry: e, block: k}, nil // it waited for its contract for long enough
		}

		if e != nil && s.isSendableNow(k, e) {
			k.endWaits()
			return &candidate{entry: e, block: k}, nil
		}
	}
}

// holdForContract makes a block wait for the contract of its first message, and reports whether the
// message still waits.
func (s *selector) holdForContract(k *keyState, e *lane.Entry) bool {
	if !s.missing.hold(k, e) {
		return false
	}

	ch := &lane.Change{}
	ch.SaveBlock(k.KeyBlock)
	s.journal.record(ch, false)
	return true
}

// isSendableNow is called when a block's time has come. It reports whether the block's first
// message can be sent. The message has to wait in these cases:
//
//   - The time of its retry has not come yet. The block's time is still that of a replayed message,
//     which was sent before this message.
//   - It is not due yet, because it was moved into the queue early.
//   - Another message of the key has to be sent first: a message of the log, or a due message that
//     is not moved yet.
func (s *selector) isSendableNow(k *keyState, e *lane.Entry) bool {
	if next := e.NextAttempt(); k.BrakedContract == "" && next.After(s.now()) &&
		!s.keys.backoff.isFarAhead(next, s.now()) {
		s.deferToRetry(k, e)
		return false
	}

	if e.Message.DueAt.After(s.now()) {
		k.waitUntil(e.Message.DueAt)
		return false
	}

	if s.due.awaitsMove(e) {
		s.due.waitForMove(k.KeyHash)
		return false
	}

	return s.isLogDone(k)
}

// deferToRetry makes a block wait for the retry of its first message.
func (s *selector) deferToRetry(k *keyState, e *lane.Entry) {
	k.deferUntil(e.NextAttempt())
	ch := &lane.Change{}
	ch.SaveBlock(k.KeyBlock)
	s.journal.record(ch, false)
}

// isLogDone reports whether all log messages of the key that go before the block's first message
// are settled.
func (s *selector) isLogDone(k *keyState) bool {
	return max(k.firstLogPos, k.waitLogPos) <= s.readAhead.firstPendingSeq(k.KeyHash)
}

// readFirstHeld returns a block's first held message, or the newest version that supersedes that
// message. It returns nil if it has just superseded messages of the block, or if log messages have
// to be sent first.
func (s *selector) readFirstHeld(ctx context.Context, k *keyState) (*lane.Entry, error) {
	if k.first != nil && !k.first.Message.Supersede {
		k.orderFirst(k.first.AsHeld())
		return k.first, nil
	}

	held, e, err := s.readFirstOf(ctx, k)
	if err != nil {
		return nil, err
	}

	k.orderFirst(held)
	if !e.Message.Supersede || s.missing.isMissing(e) {
		return e, nil
	}

	return s.newestHeld(ctx, k, e)
}

// The rows of a key's queue can contradict each other if a row is damaged or gone: a block without
// a held message, or a held message without a row of its own. Then the holder does not know which
// message of the key is next. So it sends none of them, changes none of their rows, and looks again
// each damagedRetry: only the key waits. The lane's error names the row, and an operator can put it
// back.

// damagedRetry is the time between two looks at a queue whose rows contradict each other.
const damagedRetry = time.Minute

// errNoRow is the error of a held message whose row is gone.
func errNoRow(seq int64) error {
	return &storage.Error{Op: "read held message", Kind: storage.NotFound, Index: -1,
		Code: fmt.Sprintf("message %d is held and has no row", seq)}
}

// isQueueDamaged reports whether a read of a queue failed because its rows contradict each other.
func isQueueDamaged(err error) bool {
	return storage.Is(err, storage.NotFound) || errors.Is(err, lane.ErrDamagedQueue)
}

// setAside makes a block wait whose rows contradict each other.
func (s *selector) setAside(k *keyState, err error) {
	k.setAside(s.now().Add(damagedRetry))
	s.store.Damages.Report(lane.DamagedRow{Partition: s.store.Partition(s.lane),
		Key: lane.BlockRow(k.ID), Err: err})

	ch := &lane.Change{}
	text, at := "the queue of a key cannot be read, and the key waits: "+storage.Describe(err),
		storedTime(s.now())
	ch.UpdateTail(func(t *lane.Tail) { t.LastError, t.LastErrorAt = text, at })
	s.journal.record(ch, false)
}

// readFirstOf reads the first held message of a block from storage.
func (s *selector) readFirstOf(ctx context.Context, k *keyState) (lane.HeldMessage,
	*lane.Entry, error) {
	held, err := s.store.DeliveryState().ReadHeld(ctx, s.lane, k.ID, 1)
	if err != nil {
		return lane.HeldMessage{}, nil, err
	}
	e, err := s.readHeldMessage(ctx, held[0].Seq)
	return held[0], e, err
}

func (s *selector) readHeldMessage(ctx context.Context, seq int64) (*lane.Entry, error) {
	e, err := s.store.ReadMessage(ctx, s.lane, seq)
	if storage.Is(err, storage.NotFound) {
		return nil, errNoRow(seq)
	}
	return e, err
}

// nextHeldAt returns when the next held message can be sent; zero = no message is held.
func (s *selector) nextHeldAt() (at time.Time) {
	s.keys.eachFirst(func(k *keyState) { at = earlierOf(at, s.pauses.nextAttemptAt(k)) })
	return at
}

// nextUntriedAt returns when the next untried held message can be sent; zero = there is none. It
// leaves out keys that had their turn in this round.
func (s *selector) nextUntriedAt() (at time.Time) {
	s.keys.eachFirst(func(k *keyState) {
		if k.IsUntried && !s.breaker.probedKeys[k.KeyHash] {
			at = earlierOf(at, s.pauses.nextAttemptAt(k))
		}
	})
	return at
}

// nextHeldWakeAt returns the earliest time for which the session needs a timer to send a held
// message; zero = none. Blocks that wait for the log, for a move, or for the next round need no
// timer.
func (s *selector) nextHeldWakeAt() (at time.Time) {
	isResting := s.breaker.isResting(s.now())
	s.keys.eachFirst(func(k *keyState) {
		isReady := s.isLogDone(k) && !s.due.isShut(k.KeyHash)
		if isReady && !s.breaker.probedKeys[k.KeyHash] && (k.IsUntried || !isResting) {
			at = earlierOf(at, s.pauses.nextAttemptAt(k))
		}
	})

	return at
}

// prefetchRetry reads the first message of the next block whose time comes within lane.DueLead. It
// also reads the body, unless the body is large.
func (s *selector) prefetchRetry(ctx context.Context) error {
	now := s.now()
	k := s.keys.findDue(now.Add(lane.DueLead), func(k *keyState) bool {
		return k.first == nil && k.NextAt.After(now) &&
			!s.pauses.isKeyPaused(k.KeyHash, k.NextAt) && !s.due.isShut(k.KeyHash)
	})
	if k == nil || s.keys.countRetries() >= maxRetries {
		return nil
	}

	_, e, err := s.readFirstOf(ctx, k)
	if isQueueDamaged(err) {
		s.setAside(k, err)
		return nil
	}

	if err != nil {
		return err
	}

	k.keepFirst(e)
	if e.Message.Size > maxPrefetchedBody {
		return nil
	}

	fetchBody(ctx, s.store, e)

	return nil
}

// guessNext returns messages that will probably be sent next, and whose bodies are not in memory.
// These are the first sendable log message of another key, and the first messages of other blocks,
// sorted by the blocks' times.
func (s *selector) guessNext(c *candidate) (next []*lane.Entry) {
	if e := s.guessNextOfLog(c); e != nil && e.IsBodyRemote() {
		next = append(next, e)
	}
	return append(next, s.keys.firstWithoutBody(c.block, maxPrefetches-len(next))...)
}

func (s *selector) guessNextOfLog(c *candidate) *lane.Entry {
	for i, e := range s.readAhead.entries {
		key := e.KeyHash()
		if key == c.entry.KeyHash() || s.keys.byID[key] != nil ||
			s.pauses.isKeyPaused(key, s.now()) ||
			s.breaker.probedKeys[key] || s.journal.isKeyPending(key) {
			continue
		}

		if e.Message.Supersede {
			return s.newestOf(i)
		}

		return e
	}

	return nil
}
