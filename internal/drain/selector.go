package drain

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
)

// candidate is the message that the holder sends next. It is from the log or from a block.
type candidate struct {
	entry        *lane.Entry
	block        *keyState // nil if the message is from the log
	rememberedID string    // the CMS's id of the key's item; "" = none is known
	lastPos      string    // position of the key's last recorded delivery; "" = none, or not read; see readLastPos
}

// dueQueue has the state of scheduled and due messages on which the choice of the next message depends; see dueMover.
type dueQueue interface {
	isShut(keyHash string) bool
	awaitsMove(e *lane.Entry) bool
	waitForMove(keyHash string)
}

// selector chooses the next message, from the messages that were read ahead and from the blocks in turn. It parks the
// messages of blocked and paused keys: it moves them from the log into their keys' queues.
type selector struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	pauses    *operatorPauses
	breaker   *breaker
	due       dueQueue
	versions  *latestVersions

	isLogNext bool // it is the log's turn, not the blocks'
	isFromEnd bool // while attempts fail: the next message from the log is the last one that may be sent
}

// pickNext returns the next message that may be sent; nil if there is none now. Log and blocks take turns. The turn
// changes with each choice, not with each call. So the first of many messages that become due waits only for the one
// request under way, and not for another message of the log.
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

// pickFromLog returns the first message of the log that may be sent now, or the message that supersedes it. While
// attempts fail one after the other, every second choice is the last such message of the log instead. So keys at the
// end of the log have their turn, however many keys are refused at its beginning.
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

// findSendable returns the index in the read-ahead of the first message that may be sent now, or of the last one if
// "atEnd" is true. It returns -1 if there is none. findSendable skips the keys in "waits". It parks messages of blocked
// and paused keys, except while the committer has to catch up.
func (s *selector) findSendable(atEnd bool, waits map[string]bool) int {
	passed := map[string]bool{} // keys with an earlier message still in the read-ahead
	ahead := s.keys.firstAhead()
	now := s.now() // the same time for all messages: if a pause ends meanwhile, no message overtakes a parked one
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
		case (block != nil || e.Message.Supersede || s.pauses.isKeyPaused(key, now)) && s.journal.isFull():
			passed[key] = true
			i++
		case s.pauses.isKeyPaused(key, now):
			s.parkPaused(e)
		case ahead[key] != nil && 2*e.Seq() >= ahead[key].Rank():
			passed[key] = true
			i++
		case block != nil && e.Seq() >= block.firstLogPos:
			s.parkBehindBlock(e, block)
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

// parkBehindBlock moves a message of a blocked key from the log to the block. If the message had its turn in this
// round, the block counts as tried. Otherwise, if a due message has opened the block, the parked message would be sent
// before the next round.
func (s *selector) parkBehindBlock(e *lane.Entry, k *keyState) {
	s.readAhead.removeEntry(e)
	k.HeldCount++
	if s.breaker.hadTurn(e, s.now()) {
		k.IsUntried = false
	}
	ch := &lane.Change{}
	ch.Hold(k.ID, e)
	ch.SaveBlock(k.KeyBlock)
	if k.isMixed {
		// The message may go before k.first. So the queue is not read until the change is written.
		k.first, ch.Key = nil, k.KeyHash
	}
	s.journal.record(ch, false)
}

// parkPaused moves a message of a paused key from the log to the key's block, so that the log goes on. If its contract
// lets others go ahead, the message has a block of its own.
func (s *selector) parkPaused(e *lane.Entry) {
	k := s.keys.byID[e.KeyHash()]
	if k == nil {
		k = &keyState{KeyBlock: lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(), NextAt: s.keys.nextParkedAt(),
			IsUntried: true}}
		if e.Message.Skip {
			// Its retries delay no other message. But later messages of its key wait for its first attempt.
			k.LogWaitsFrom, k.IsParked = e.Seq(), true
		}
		s.keys.byID[k.ID] = k
	}
	// After the change is written, the queue is read from storage, where it has the order of the log.
	k.firstLogPos, k.isMixed = 0, true
	s.parkBehindBlock(e, k)
}

// pickHeld returns the first held message of a key whose time has come, or the message that supersedes it.
func (s *selector) pickHeld(ctx context.Context) (*candidate, error) {
	for {
		now, ahead := s.now(), s.keys.firstAhead()
		isResting := s.breaker.isResting(now)
		k := s.keys.findDue(now, func(k *keyState) bool {
			return (k.IsUntried || !isResting) && !s.breaker.probedKeys[k.KeyHash] &&
				!s.journal.isKeyPending(k.KeyHash) &&
				!s.due.isShut(k.KeyHash) && !s.pauses.isKeyPaused(k.KeyHash, now) &&
				(k.LogWaitsFrom == 0 || ahead[k.KeyHash] == k) && s.isLogDone(k)
		})
		if k == nil {
			return nil, nil
		}
		e, err := s.readFirstHeld(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("read held message: %w", err)
		}
		if e != nil && s.isSendableNow(k, e) {
			return &candidate{entry: e, block: k}, nil
		}
	}
}

// isSendableNow reports whether a block's first message may be sent. Even if the block's time has come, there are three
// reasons against that. First, the message still waits for its retry, because the block's time was that of a replayed
// message before it. Second, the message was moved early, and is not due yet. Third, another message of its key may
// have to go first, from the log or by a move.
func (s *selector) isSendableNow(k *keyState, e *lane.Entry) bool {
	if next := e.NextAttempt(); next.After(s.now()) && !s.keys.backoff.isFarAhead(next, s.now()) {
		s.deferToRetry(k, e)
		return false
	}
	if e.Message.DueAt.After(s.now()) {
		k.NextAt = e.Message.DueAt
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
	k.NextAt, k.IsUntried = e.NextAttempt(), false
	ch := &lane.Change{}
	ch.SaveBlock(k.KeyBlock)
	s.journal.record(ch, false)
}

// isLogDone reports whether no message of the log has to go before a block's first message: the log was read up to the
// position of that message, and the read-ahead has no message of its key before that position.
func (s *selector) isLogDone(k *keyState) bool {
	return max(k.firstLogPos, k.waitLogPos) <= s.readAhead.firstPendingSeq(k.KeyHash)
}

// readFirstHeld returns the first held message of a block, or the newest version that supersedes it. It returns nil if
// messages of the block were superseded just now, or if messages of the log have to go first. Then the block waits.
func (s *selector) readFirstHeld(ctx context.Context, k *keyState) (*lane.Entry, error) {
	if k.first != nil && !k.first.Message.Supersede {
		k.firstLogPos = k.first.AfterLog()
		return k.first, nil
	}
	held, err := s.store.DeliveryState().ReadHeld(ctx, s.lane, k.ID, 1)
	if err != nil {
		return nil, err
	}
	k.firstLogPos = held[0].AfterLog()
	e, err := s.store.ReadMessage(ctx, s.lane, held[0].Seq)
	if err != nil || !e.Message.Supersede {
		return e, err
	}
	return s.newestHeld(ctx, k, e)
}

// nextHeldAt returns when the next held message may be sent; zero = no message is held.
func (s *selector) nextHeldAt() (at time.Time) {
	s.keys.eachFirst(func(k *keyState) { at = earlierOf(at, s.pauses.nextAttemptAt(k)) })
	return at
}

// nextUntriedAt returns when the next held message without an attempt may be sent; zero = there is none. It leaves out
// keys that had their turn in this round.
func (s *selector) nextUntriedAt() (at time.Time) {
	s.keys.eachFirst(func(k *keyState) {
		if k.IsUntried && !s.breaker.probedKeys[k.KeyHash] {
			at = earlierOf(at, s.pauses.nextAttemptAt(k))
		}
	})
	return at
}

// nextHeldWakeAt returns the next time at which a held message may be sent if no news comes before; zero = there is
// none. It leaves out blocks that wait for the log, for a move, or for the next round: they need no timer.
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

// prefetchRetry fetches the first message of the next block whose time comes within lane.DueLead. It fetches the
// message's body, too, if that is not large. Most of these messages wait for a retry. If the message supersedes others,
// readFirstHeld reads the queue again when the block's time has come.
func (s *selector) prefetchRetry(ctx context.Context) error {
	now := s.now()
	k := s.keys.findDue(now.Add(lane.DueLead), func(k *keyState) bool {
		return k.first == nil && k.NextAt.After(now) &&
			!s.pauses.isKeyPaused(k.KeyHash, k.NextAt) && !s.due.isShut(k.KeyHash)
	})
	if k == nil || s.keys.countRetries() >= maxRetries {
		return nil
	}
	held, err := s.store.DeliveryState().ReadHeld(ctx, s.lane, k.ID, 1)
	if err != nil {
		return err
	}
	e, err := s.store.ReadMessage(ctx, s.lane, held[0].Seq)
	if err != nil {
		return err
	}
	k.first = e
	if e.Message.Size > maxPrefetchedBody {
		return nil
	}
	return fetchBody(ctx, s.store, e)
}

// guessNext returns messages that probably come next and have no body in memory: the log's first sendable message of
// another key, and the first messages of other blocks, the earliest first.
func (s *selector) guessNext(c *candidate) (next []*lane.Entry) {
	if e := s.guessNextOfLog(c); e != nil && e.IsBodyRemote() {
		next = append(next, e)
	}
	return append(next, s.keys.firstWithoutBody(c.block, maxPrefetches-len(next))...)
}

func (s *selector) guessNextOfLog(c *candidate) *lane.Entry {
	for i, e := range s.readAhead.entries {
		key := e.KeyHash()
		if key == c.entry.KeyHash() || s.keys.byID[key] != nil || s.pauses.isKeyPaused(key, s.now()) ||
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
