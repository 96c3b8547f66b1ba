package drain

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"weir/internal/lane"
)

// When a scheduled message becomes due, the holder moves it from the scheduled messages into its key's queue, behind
// all messages that were filed before its due time (see due_position.go). It writes the move before it sends the
// message, so that the next holder finds the same order after a crash. It begins the move early by the time that
// storage takes (lead_time.go), so that it can send the message at its due time.
//
// Moves go on beside the sending. Goroutines read the messages, the session decides their positions between two
// requests to the CMS or during one, and the committer writes them, in the order of all its changes. From the
// decision until the answer the key is shut: no message of it is sent, parked or decided, so a move that is refused
// can be undone.

const (
	// maxMoves is how many messages are moved at once: each takes four operations of a
	// transaction, and some are left for deliveries of the same time.
	maxMoves = 20
	// maxDueReads and maxMoveWrites bound how many reads and transactions are under way at a time. While a read that is
	// not full is under way, no other begins: messages that become due meanwhile share the next read.
	maxDueReads, maxMoveWrites = 3, 2
	// maxReady bounds the messages that were read and are not decided.
	maxReady = 4 * maxMoves
)

// dueMover moves due messages into their keys' queues.
type dueMover struct {
	laneScope
	journal      *journal
	keys         *keyStates
	cache        dueCache
	lead         *leadTime
	positions    *duePositions
	moves        moves
	isSealed     bool                          // the lane is to run empty: scheduled messages stay so
	sendingKey   string                        // the hash of the key of which a request is under way
	applyControl func(lane.Control, time.Time) // gets control rows, and when their read began
	notify       func()                        // wakes the session; safe for concurrent use
}

// moves are the scheduled messages on their way into their keys' queues.
type moves struct {
	reading []chan dueRead // in order of their due times
	ready   []readyMessage // read, and not decided
	writing []*moveWrite
	shut    map[string]bool // hashes of the keys of messages that are being written
	waiting map[string]bool // hashes of the keys whose first held message waits for a move
	answers int             // raised by each answer that may end a message's wait for a move
	err     error           // of a read; the session ends with it
}

// readyMessage is a due message that was read.
type readyMessage struct {
	due    lane.DueTime
	entry  *lane.Entry
	logPos int64 // it goes before this number of the log, or later, if messages from there on were sent since
}

// moveWrite is a move that the committer has.
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

// advance does the next steps of all moves that need no waiting. After a failed read it returns the error of that read.
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

// isShut reports whether no message of a key may be decided, because a move of one is being
// written, or may go in front.
func (m *dueMover) isShut(keyHash string) bool {
	return m.moves.shut[keyHash] || m.moves.waiting[keyHash]
}

// waitForMove shuts a key whose first held message waits for a move, until the next answer.
func (m *dueMover) waitForMove(keyHash string) {
	if m.moves.waiting == nil {
		m.moves.waiting = map[string]bool{}
	}
	m.moves.waiting[keyHash] = true
}

// isUnderWay reports whether a message is on its way into its key's queue.
func (m *dueMover) isUnderWay() bool {
	return len(m.moves.reading)+len(m.moves.ready)+len(m.moves.writing) > 0
}

// recordAnswer is called for each answer that may end a message's wait for a move.
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

// awaitsMove reports whether a message must wait because one that became due before it was filed,
// or before it became due itself, has no position yet: they may be of one key.
func (m *dueMover) awaitsMove(e *lane.Entry) bool {
	if m.isSealed {
		return false
	}
	due, any := m.cache.firstUndecidedAt()
	if !any {
		return false
	}
	if !m.cache.isLoaded {
		return m.canBegin() // it has to be read first
	}
	if at := e.Message.DueAt; !at.IsZero() {
		return due.Before(at)
	}
	return !due.After(e.Message.AcceptedAt)
}

// takeRead takes over messages that were read, in the order in which the reads began.
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
				m.cache.markProgress(moveNotBegun, dueTimesOf(p.entries)...) // the next read finds their positions
			} else {
				mv.ready = append(mv.ready, p.entries...)
			}
			mv.recordAnswer()
		default:
			return
		}
	}
}

// takeWritten takes over the answers to moves. If one message of a move was cancelled or rescheduled, storage
// refuses the whole move. The mover then makes it again without that message.
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
				again := slices.DeleteFunc(w.entries, func(p readyMessage) bool { return p.due == gone })
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

// finishWrites waits until no move is being written.
func (m *dueMover) finishWrites(ctx context.Context) error {
	err := m.journal.waitBelow(ctx, 1)
	m.takeWritten()
	return err
}

// decideMoves decides the positions of messages that were read, and hands their moves to the
// committer.
func (m *dueMover) decideMoves() {
	for len(m.moves.writing) < maxMoveWrites && !m.isSealed {
		batch := m.pickReady()
		if len(batch) == 0 {
			return
		}
		ch, undo := m.buildMove(batch)
		m.cache.markProgress(moveDecided, dueTimesOf(batch)...)
		w := &moveWrite{entries: batch, beganAt: m.now(), undo: undo, answer: make(chan moveResult, 1)}
		m.moves.writing = append(m.moves.writing, w)
		for _, p := range batch {
			m.moves.shut[p.entry.KeyHash()] = true
		}
		m.journal.addMove(ch, func(err error) {
			w.answer <- moveResult{m.now(), err}
			m.notify()
		})
	}
}

// pickReady takes out the messages that may be decided. It leaves a message if another message of its key is being
// written or sent, or is ready before it.
func (m *dueMover) pickReady() (batch []readyMessage) {
	if len(m.moves.ready) == 0 {
		return nil
	}
	shut := maps.Clone(m.moves.shut)
	shut[m.sendingKey] = true
	m.moves.ready = slices.DeleteFunc(m.moves.ready, func(p readyMessage) bool {
		key := p.entry.KeyHash()
		if shut[key] || len(batch) == maxMoves {
			shut[key] = true
			return false
		}
		batch = append(batch, p)
		return true
	})
	return batch
}

// buildMove builds the change, and applies it to the keys in memory; undo takes the latter back.
func (m *dueMover) buildMove(batch []readyMessage) (ch *lane.Change, undo func()) {
	ch = &lane.Change{}
	before := map[string]*keyState{}
	room := m.keys.leftRoom()
	for _, p := range batch {
		e, logPos := p.entry, max(p.logPos, m.positions.sentBelow)
		id := e.BlockID()
		k := m.keys.byID[id]
		if _, saved := before[id]; !saved {
			before[id] = k
		}
		ch.Release(e, logPos, &m.keys.lastReleasedAt)
		k = k.join(e, logPos, &room)
		m.keys.byID[id] = k
		if e.Message.Skip {
			// Its block delays no other message. But later messages of its key wait until it was tried.
			k.LogWaitsFrom, k.IsParked = logPos, false
			k.ReleasedAt, k.NextAt = m.keys.lastReleasedAt, m.keys.lastParkedAt()
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

// canBegin reports whether a move is to begin now: the last read of the log may have brought a
// message that is due.
func (m *dueMover) canBegin() bool {
	at := m.nextMoveAt()
	return !at.IsZero() && !at.After(m.now())
}

// nextMoveAt returns when the next move is to begin; zero = none is known.
func (m *dueMover) nextMoveAt() time.Time {
	if m.isSealed {
		return time.Time{}
	}
	if !m.cache.isLoaded {
		if m.cache.nextAt.IsZero() {
			return time.Time{}
		}
		return m.cache.nextAt.Add(-leadMax - m.lead.current()) // early enough to learn how many are due then
	}
	var at time.Time
	m.eachTurn(func(due, begin time.Time) {
		if at.IsZero() || begin.Before(at) {
			at = begin
		}
	})
	return at
}

// eachTurn goes through the turns in which scheduled messages will be moved, maxMoves at a time: f
// gets the due time of the first message of a turn, and the time at which its move is to begin. If
// many are due at one time, the last ones wait for the turns of the first.
func (m *dueMover) eachTurn(f func(due, begin time.Time)) {
	lead := m.lead.current()
	wait := m.cache.notBegun()
	for i := 0; i < len(wait); i += maxMoves {
		turns := time.Duration(i/maxMoves) * lead / (maxDueReads + 1)
		f(wait[i].At, wait[i].At.Add(-min(lead+turns, leadMax)))
	}
}

// startReads begins to read the messages of the next move.
func (m *dueMover) startReads(ctx context.Context) {
	for m.canBegin() {
		if !m.cache.isLoaded {
			m.readDueTimes(ctx)
			return
		}
		dues := m.pickTurn()
		n := len(m.moves.reading)
		if n > 0 && (n >= maxDueReads || len(dues) < maxMoves) || len(m.moves.ready) >= maxReady {
			break
		}
		m.cache.markProgress(moveBegun, dues...)
		m.startRead(ctx, dues)
	}
	if c := &m.cache; c.hasMore && len(c.notBegun()) < dueCacheMax/4 && c.nextAt.Before(m.now().Add(leadMax)) {
		m.readDueTimes(ctx)
	}
}

// startRead begins to read messages that become due, and to look for their positions.
func (m *dueMover) startRead(ctx context.Context, dues []lane.DueTime) {
	answer, low, room := make(chan dueRead, 1), m.positions.sentBelow, m.keys.leftRoom()
	room.bytes /= maxDueReads // the other reads have their shares
	m.moves.reading = append(m.moves.reading, answer)
	go func() {
		answer <- readDue(ctx, m.laneScope, m.positions, dues, low, &room)
		m.notify()
	}()
}

// pickTurn returns the messages to move now, and a few that follow, which share their transaction.
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

// readDueTimes begins to read the earliest due times, unless a read is under way.
func (m *dueMover) readDueTimes(ctx context.Context) {
	if m.cache.reading != nil {
		return
	}
	answer := make(chan duePage, 1)
	m.cache.beginLoad(answer)
	go func() {
		dues, more, err := m.store.ReadDueTimes(ctx, m.lane, dueCacheMax)
		answer <- duePage{dues, more, err}
		m.notify()
	}()
}

// invalidateDueTimes requests another read of the due times, because a message was cancelled or rescheduled.
func (m *dueMover) invalidateDueTimes() { m.cache.invalidateAt(m.now()) }

// takeDueTimes takes over the due times that were read.
func (m *dueMover) takeDueTimes() {
	select {
	case p := <-m.cache.reading: // never, if no read is under way
		if m.moves.err = cmp.Or(m.moves.err, p.err); p.err == nil {
			m.cache.replaceWith(p)
			m.moves.recordAnswer()
		}
	default:
	}
}

// nextDueAt returns the time before which no message becomes due; zero = none does. In a sealed lane
// none does: scheduled messages are moved in the epoch that follows, or after the lane was
// unsealed, which raises the request number in head.
func (m *dueMover) nextDueAt() time.Time {
	if m.isSealed {
		return time.Time{}
	}
	return m.cache.nextDueAt()
}

// nextReadAt returns when the clock alone lets the next move begin; zero = it does not.
func (m *dueMover) nextReadAt() time.Time {
	isBusy := len(m.moves.reading) > 0 || len(m.moves.ready) >= maxReady
	if isBusy || !m.cache.isLoaded && m.cache.reading != nil {
		return time.Time{}
	}
	return m.nextMoveAt()
}

// hasToReadFirst reports whether a due message may go before any other, so that it has to be read before the choice of
// the next message.
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
