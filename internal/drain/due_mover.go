package drain

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
)

// When a scheduled message becomes due, the holder moves it into its key's queue
// (lane.Change.Release). due_position.go describes the position of the message in the queue. The
// holder writes the move before it sends the message, so that the next holder finds the same order
// after a crash. Storage takes some time for the move. So the move begins a little before the due
// time (due_position.go), and the message is sent on time.
//
// Moves go on while other messages are sent:
//
//   - Goroutines read the messages.
//   - The session decides the positions of these messages, between two requests to the CMS or
//     during one.
//   - The committer writes the moves, in the order of all changes.
//
// From the decision until the committer's answer the key is shut: no other message of the key is
// sent, moved, or parked (taken from the log into the queue). So a refused move can be undone.

const (
	// maxMoves is the largest number of messages that are moved in one transaction. Each message
	// takes four operations of the transaction. The other operations are left for deliveries.
	maxMoves = 20
	// maxDueReads and maxMoveWrites bound how many reads and writes of moves are under way at a
	// time. While a read is under way, another read begins only if it can read maxMoves messages at
	// once.
	maxDueReads, maxMoveWrites = 3, 2
	// If maxReady messages have been read and wait for the decision of their positions, no further
	// read begins.
	maxReady = 4 * maxMoves
	// While maxAhead moved messages wait for the CMS, no further move begins: see isHeldBack.
	maxAhead = 6 * maxMoves
)

// dueMover moves due messages into their keys' queues.
type dueMover struct {
	laneScope
	journal   *journal
	keys      *keyStates
	cache     dueCache
	lead      *leadTime
	positions *duePositions
	moves     moves
	// the number of lanes changes: scheduled messages stay scheduled
	isSealed bool
	// hash of the key whose message is being sent; "" = none
	sendingKey string
	// the last choice found a held message that can be sent
	hasSendable bool
	isHeldBack  bool // moves wait; see holdBack
	// takes control rows, and the time at which their read began
	applyControl func(lane.Control, time.Time)
	notify       func() // wakes the session; safe for concurrent use
}

// moves has the scheduled messages on their way into their keys' queues.
type moves struct {
	reading []chan dueRead  // reads under way, in the order in which they began
	ready   []readyMessage  // messages that were read, and whose positions are not decided
	writing []*moveWrite    // moves that were decided, and that the committer has not answered
	shut    map[string]bool // hashes of the keys of messages in "writing"
	// hashes of the keys whose first held message waits for the move of another message
	waiting map[string]bool
	answers int   // number of calls of recordAnswer
	err     error // the first error of a read: it ends the session; nil = none
}

// readyMessage is a scheduled message that was read for its move.
type readyMessage struct {
	due   lane.DueTime
	entry *lane.Entry
	// sequence number of the first log message that goes after this one; buildMove can use a higher
	// number
	logPos int64
}

// moveWrite is a move of several messages, which the committer has to write.
type moveWrite struct {
	entries []readyMessage
	beganAt time.Time
	undo    func()
	answer  chan moveResult
}

// moveResult is the committer's answer to a move.
type moveResult struct {
	at  time.Time
	err error
}

// advance does all steps of moves that are possible without waiting. After a failed read each call
// returns the error of that read.
func (m *dueMover) advance(ctx context.Context) error {
	m.takeDueTimes()
	m.takeRead()
	m.takeWritten()

	if m.moves.err == nil {
		m.decideMoves()
		m.startReads(ctx)
	}

	return m.moves.err
}

// isShut reports whether a key is shut: its messages must not be sent or parked now, because a
// message of the key is being moved, or because another message may have to be moved first.
func (m *dueMover) isShut(keyHash string) bool {
	return m.moves.shut[keyHash] || m.moves.waiting[keyHash]
}

// waitForMove shuts a key until the next recordAnswer, because the first held message of the key
// waits for the move of another message.
func (m *dueMover) waitForMove(keyHash string) {
	if m.moves.waiting == nil {
		m.moves.waiting = map[string]bool{}
	}
	m.moves.waiting[keyHash] = true
}

// hasDue reports whether a scheduled message is due.
func (m *dueMover) hasDue() bool {
	at := m.cache.nextDueAt()
	return !at.IsZero() && !at.After(m.now())
}

// recordChoice records whether the last choice found a held message that can be sent.
func (m *dueMover) recordChoice(hasSendable bool) { m.hasSendable = hasSendable }

// holdBack reports whether moves wait, because enough moved messages wait for the CMS. If
// thousands of messages are due at one time, moves that run ahead of the CMS crowd the partition,
// take memory, and make each choice slower. Moves are not held back in these cases:
//
//   - No held message can be sent: for example, all wait for the end of a pause of their key, or
//     for a log message that waits for a move.
//   - The keys of some due messages are not known: each log message waits for their moves.
//
// ready and soon are the results of keyStates.countWaiting.
func (m *dueMover) holdBack(ready, soon int) bool {
	underWay := len(m.moves.ready) + maxMoves*len(m.moves.reading)
	return ready+soon+underWay >= maxAhead && (soon > 0 || m.hasSendable) &&
		m.cache.knowsKeysUntil(m.now())
}

// isUnderWay reports whether a message is on its way into its key's queue.
func (m *dueMover) isUnderWay() bool {
	return len(m.moves.reading)+len(m.moves.ready)+len(m.moves.writing) > 0
}

// recordAnswer is called after each answer of a read or of the committer. It ends the effect of
// waitForMove, and updates mv.shut.
func (mv *moves) recordAnswer() {
	mv.answers++
	clear(mv.waiting)
	mv.shut = map[string]bool{}
	for _, w := range mv.writing {
		for _, p := range w.entries {
			mv.shut[p.entry.KeyHash()] = true
		}
	}
}

// awaitsMove reports whether message e must wait for the move of another message. The other message
// is scheduled, its position is not decided, and it has the same key as e, or can have it: the key
// is not known. Message e waits in these cases:
//
//   - e has a due time, and the other message is due earlier.
//   - e has no due time, and the other message was due when e was accepted.
func (m *dueMover) awaitsMove(e *lane.Entry) bool {
	if m.isSealed {
		return false
	}

	due := m.cache.firstUndecidedAt(e.KeyHash())
	if due.IsZero() {
		return false
	}
	if !m.cache.isLoaded {
		return m.canBegin() // the due times have to be read first
	}

	if at := e.Message.DueAt; !at.IsZero() {
		return due.Before(at)
	}

	return !due.After(e.Message.AcceptedAt)
}

// takeRead takes over the messages of reads that have ended, in the order in which the reads began.
func (m *dueMover) takeRead() {
	mv := &m.moves
	for len(mv.reading) > 0 {
		select {
		case p := <-mv.reading[0]:
			mv.reading = mv.reading[1:]
			if mv.err = cmp.Or(mv.err, p.err); p.err != nil {
				continue
			}

			m.lead.addMeasurement(m.now(), p.took, 0)
			m.positions.limitSent(p.control)
			m.applyControl(p.control, p.askedAt)
			m.cache.removeDues(p.gone...)

			if m.positions.isOutdated(&p) {
				// another read may find lower positions
				m.cache.markProgress(moveNotBegun, dueTimesOf(p.entries)...)
			} else {
				mv.ready = append(mv.ready, p.entries...)
			}

			mv.recordAnswer()

		default:
			return
		}
	}
}

// takeWritten takes over the committer's answers to moves. If one message of a move was cancelled
// or rescheduled, storage refuses the whole move. The mover then repeats the move without that
// message.
func (m *dueMover) takeWritten() {
	mv, hasAnswer := &m.moves, false
	mv.writing = slices.DeleteFunc(mv.writing, func(w *moveWrite) bool {
		select {
		case a := <-w.answer:
			hasAnswer = true
			m.lead.addMeasurement(m.now(), 0, a.at.Sub(w.beganAt))

			if gone, refused := lane.NoLongerDue(a.err); refused {
				w.undo()
				m.cache.removeDues(gone)
				again := slices.DeleteFunc(w.entries,
					func(p readyMessage) bool { return p.due == gone })
				m.cache.markProgress(moveBegun, dueTimesOf(again)...)
				mv.ready = append(again, mv.ready...)
			} else {
				m.cache.removeDues(dueTimesOf(w.entries)...)
			}

			return true

		default:
			return false
		}
	})

	if hasAnswer {
		mv.recordAnswer()
	}
}

// finishWrites waits until all changes are committed, and takes over the committer's answers to
// moves.
func (m *dueMover) finishWrites(ctx context.Context) error {
	err := m.journal.waitBelow(ctx, 1)
	m.takeWritten()
	return err
}

// decideMoves decides the positions of messages that were read, and hands their moves to the
// committer.
func (m *dueMover) decideMoves() {
	for len(m.moves.writing) < maxMoveWrites && !m.isSealed {
		group := m.pickReady()
		if len(group) == 0 {
			return
		}

		ch, undo := m.buildMove(group)
		m.cache.markProgress(moveDecided, dueTimesOf(group)...)
		w := &moveWrite{entries: group, beganAt: m.now(), undo: undo,
			answer: make(chan moveResult, 1)}
		m.moves.writing = append(m.moves.writing, w)
		for _, p := range group {
			m.moves.shut[p.entry.KeyHash()] = true
		}

		m.journal.addMove(ch, func(err error) {
			w.answer <- moveResult{m.now(), err}
			m.notify()
		})
	}
}

// pickReady takes out up to maxMoves ready messages whose positions may be decided. It leaves all
// messages of a key that has a message being moved or sent.
func (m *dueMover) pickReady() (group []readyMessage) {
	if len(m.moves.ready) == 0 {
		return nil
	}

	shut := maps.Clone(m.moves.shut)
	shut[m.sendingKey] = true
	m.moves.ready = slices.DeleteFunc(m.moves.ready, func(p readyMessage) bool {
		key := p.entry.KeyHash()
		if shut[key] || len(group) == maxMoves {
			shut[key] = true
			return false
		}

		group = append(group, p)
		return true
	})

	return group
}

// buildMove builds the change of a move, and applies the move to the blocks in memory. undo
// restores these blocks.
func (m *dueMover) buildMove(group []readyMessage) (ch *lane.Change, undo func()) {
	ch = &lane.Change{}
	before := map[string]*keyState{}
	room := m.keys.leftRoom()
	for _, p := range group {
		e, logPos := p.entry, max(p.logPos, m.positions.sentBelowOf(p.entry.KeyHash()))
		id := e.BlockID()
		k := m.keys.byID[id]
		if _, saved := before[id]; !saved {
			before[id] = k
		}

		ch.Release(e, logPos, &m.keys.lastReleasedAt)
		k = k.join(e, logPos, &room)
		m.keys.byID[id] = k
		if e.Message.Skip {
			// The contract has onFailure: skip. So retries of the message delay no other message,
			// but later messages of its key wait for its first attempt.
			k.releaseSingle(logPos, m.keys.lastReleasedAt, m.keys.lastParkedAt())
		}

		ch.SaveBlock(k.KeyBlock)
	}

	m.journal.saveProgress(ch)

	return ch, func() {
		for id, k := range before {
			if k == nil {
				delete(m.keys.byID, id)
			} else {
				m.keys.byID[id] = k
			}
		}
	}
}

// canBegin reports whether the next move, or a read of due times, is to begin now.
func (m *dueMover) canBegin() bool {
	at := m.nextMoveAt()
	return !at.IsZero() && !at.After(m.now())
}

// nextMoveAt returns when the next move is to begin; zero = no move is known.
func (m *dueMover) nextMoveAt() time.Time {
	if m.isSealed {
		return time.Time{}
	}

	if !m.cache.isLoaded {
		if m.cache.nextAt.IsZero() {
			return time.Time{}
		}
		// early enough to learn how many messages are due
		return m.cache.nextAt.Add(-leadMax - m.lead.current())
	}

	var at time.Time
	m.eachTurn(func(due, begin time.Time) {
		if at.IsZero() || begin.Before(at) {
			at = begin
		}
	})

	return at
}

// eachTurn divides the messages whose moves have not begun into turns. The messages of one turn,
// maxMoves at most, are moved together. eachTurn calls f with the due time of the first message of
// each turn, and with the time at which the move of the turn is to begin. A later turn gets a
// longer lead before its due time, because it waits for the moves of earlier turns.
func (m *dueMover) eachTurn(f func(due, begin time.Time)) {
	lead := m.lead.current()
	wait := m.cache.notBegun()
	for i := 0; i < len(wait); i += maxMoves {
		turns := time.Duration(i/maxMoves) * lead / (maxDueReads + 1)
		f(wait[i].At, wait[i].At.Add(-min(lead+turns, leadMax)))
	}
}

// startReads begins to read the messages of the next moves. It also begins to read further due
// times, so that the keys of all messages that are due are known (awaitsMove).
func (m *dueMover) startReads(ctx context.Context) {
	var ready, soon int
	if m.isHeldBack = false; m.canBegin() {
		ready, soon = m.keys.countWaiting(m.now(), m.now().Add(leadMax))
	}

	for m.canBegin() {
		if !m.cache.isLoaded {
			m.readDueTimes(ctx)
			return
		}

		if m.isHeldBack = m.holdBack(ready, soon); m.isHeldBack {
			break
		}

		dues := m.pickTurn()
		n := len(m.moves.reading)
		if n > 0 && (n >= maxDueReads || len(dues) < maxMoves) || len(m.moves.ready) >= maxReady {
			break
		}

		m.cache.markProgress(moveBegun, dues...)
		m.startRead(ctx, dues)
	}

	if m.cache.wantsMore(m.now().Add(leadMax), m.keys.memory.shareOf(maxDueBytes)) {
		m.readDueTimes(ctx)
	}
}

// startRead begins to read the messages with the given due times, and to find their positions.
func (m *dueMover) startRead(ctx context.Context, dues []lane.DueTime) {
	answer, low, room := make(chan dueRead, 1), m.positions.searchFrom(), m.keys.leftRoom()
	room.bytes /= maxDueReads // up to maxDueReads reads share the room in memory
	m.moves.reading = append(m.moves.reading, answer)
	go func() {
		var read dueRead
		err := panics.Catch(func() error {
			read = readDue(ctx, m.laneScope, m.positions, dues, low, &room)
			return read.err
		})

		read.err = err
		answer <- read
		m.notify()
	}()
}

// pickTurn returns the due times of the messages to move now, maxMoves at most. It also takes
// messages whose moves could begin a little later, because they can share the transaction.
func (m *dueMover) pickTurn() (dues []lane.DueTime) {
	now := m.now()
	by := now.Add(min(m.lead.current()*3/2, leadMax))
	m.eachTurn(func(due, begin time.Time) {
		if !begin.After(now) && due.After(by) {
			by = due
		}
	})

	for _, d := range m.cache.notBegun() {
		if len(dues) == maxMoves || d.At.After(by) {
			break
		}
		if m.cache.progress[d] == moveNotBegun {
			dues = append(dues, d)
		}
	}

	return dues
}

// readDueTimes begins to read the earliest due times, or those behind the last one that was read.
// It does nothing if such a read is under way.
func (m *dueMover) readDueTimes(ctx context.Context) {
	if m.cache.reading != nil {
		return
	}

	answer, after := make(chan duePage, 1), m.cache.lastRead()
	m.cache.beginLoad(answer)
	go func() {
		page := duePage{after: after}
		page.err = panics.Catch(func() (err error) {
			page.dues, page.more, err = m.store.DeliveryState().ReadDue(ctx, m.lane,
				after, duePageRows)
			return err
		})

		answer <- page
		m.notify()
	}()
}

// invalidateDueTimes requests another read of the due times, because a message was cancelled or
// rescheduled.
func (m *dueMover) invalidateDueTimes() { m.cache.invalidateAt(m.now()) }

// takeDueTimes takes over the due times that were read.
func (m *dueMover) takeDueTimes() {
	select {
	case p := <-m.cache.reading: // nil, and so never ready, if no read is under way
		if m.moves.err = cmp.Or(m.moves.err, p.err); p.err == nil {
			m.cache.takePage(p)
			m.moves.recordAnswer()
		}
	default:
	}
}

// nextDueAt returns the earliest time at which a scheduled message can become due; zero = no
// message becomes due. In a sealed lane no message becomes due. The lane's scheduled messages are
// delivered in the next epoch, or in this lane if the seal is removed.
func (m *dueMover) nextDueAt() time.Time {
	if m.isSealed {
		return time.Time{}
	}
	return m.cache.nextDueAt()
}

// nextReadAt returns when the session has to begin the next read for a move. It returns zero if no
// move is known. It also returns zero if an earlier read or write has to end first, because the end
// of that read or write wakes the session, or if moves are held back until messages are sent.
func (m *dueMover) nextReadAt() time.Time {
	isBusy := len(m.moves.reading) > 0 || len(m.moves.ready) >= maxReady
	if isBusy || m.isHeldBack || !m.cache.isLoaded && m.cache.reading != nil {
		return time.Time{}
	}

	return m.nextMoveAt()
}

// hasToReadFirst reports whether due times have to be read before the next message is chosen,
// because a due message may have to be sent first.
func (m *dueMover) hasToReadFirst() bool { return !m.cache.isLoaded && m.canBegin() }

// earlierOf returns the earlier of two times; zero = never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func dueTimesOf(entries []readyMessage) []lane.DueTime {
	dues := make([]lane.DueTime, len(entries))
	for i, p := range entries {
		dues[i] = p.due
	}
	return dues
}
