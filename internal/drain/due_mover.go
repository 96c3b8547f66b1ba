package drain

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"weir/internal/lane"
)

// When a scheduled message becomes due, the holder moves it from the scheduled messages into its key's queue
// (lane.Change.Release), at the position that due_position.go describes. The holder writes the move before it sends the
// message, so that the next holder finds the same order after a crash. Storage takes some time for the move, so the
// holder begins it that much earlier (lead_time.go), and can send the message at its due time.
//
// Moves go on beside the sending. Goroutines read the messages. The session decides their positions between two
// requests to the CMS or during one. The committer writes the moves in the order of all changes. From the decision
// until the committer's answer the key is shut: no other message of the key is sent, parked or moved. So a refused move
// can be undone.

const (
	// maxMoves is how many messages are moved in one transaction. Each message takes four operations, and some
	// operations are left for deliveries that are committed at the same time.
	maxMoves = 20
	// maxDueReads and maxMoveWrites bound how many reads and writes of moves are under way at a time. While a read is
	// under way, another read begins only if there are maxMoves messages for it. Fewer messages wait, and share a later
	// read.
	maxDueReads, maxMoveWrites = 3, 2
	// If maxReady messages have been read and wait for the decision of their positions, no further read begins.
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
	isSealed     bool                          // the lane is to run empty: scheduled messages stay scheduled
	sendingKey   string                        // hash of the key whose message is being sent; "" = none
	applyControl func(lane.Control, time.Time) // takes control rows, and the time at which their read began
	notify       func()                        // wakes the session; safe for concurrent use
}

// moves are the scheduled messages on their way into their keys' queues.
type moves struct {
	reading []chan dueRead  // reads under way, in the order in which they began
	ready   []readyMessage  // messages that were read, and whose positions are not decided
	writing []*moveWrite    // moves that were decided, and that the committer has not answered
	shut    map[string]bool // hashes of the keys of messages in "writing"
	waiting map[string]bool // hashes of the keys whose first held message waits for a move
	answers int             // raised by each answer that may end a message's wait for a move
	err     error           // the first error of a read, with which the session ends; nil = none
}

// readyMessage is a due message that was read.
type readyMessage struct {
	due    lane.DueTime
	entry  *lane.Entry
	logPos int64 // the message goes before the log message with this number, or behind it if it was sent since
}

// moveWrite is a move of several messages, which the committer is to write.
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

// advance does all steps of moves that are possible without waiting. After a failed read each call returns the error of
// that read.
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

// isShut reports whether no message of a key may be sent or parked, because a message of the key is being moved, or has
// to be moved first.
func (m *dueMover) isShut(keyHash string) bool {
	return m.moves.shut[keyHash] || m.moves.waiting[keyHash]
}

// waitForMove shuts a key whose first held message waits for a move. The key is shut until the next recordAnswer.
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

// awaitsMove reports whether the message e must wait, because another message, which has no position yet, may have to
// go before e. That is so if the other message is due before e is due, or, if e has no due time, no later than e was
// accepted. Only the due time of the other message is known, so each key may be its key.
func (m *dueMover) awaitsMove(e *lane.Entry) bool {
	if m.isSealed {
		return false
	}
	due, any := m.cache.firstUndecidedAt()
	if !any {
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
				m.cache.markProgress(moveNotBegun, dueTimesOf(p.entries)...) // another read finds better positions
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

// finishWrites waits until all changes are committed, and takes over the answers to moves.
func (m *dueMover) finishWrites(ctx context.Context) error {
	err := m.journal.waitBelow(ctx, 1)
	m.takeWritten()
	return err
}

// decideMoves decides the positions of messages that were read, and hands their moves to the committer.
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

// pickReady takes out the ready messages that may be decided, up to maxMoves. It leaves a message if another message of
// its key is being moved or sent, or comes before it among the ready messages.
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

// buildMove builds the change of a move, and applies it to the blocks in memory. undo restores the blocks in memory.
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
			// Its retries delay no other message. But later messages of its key wait for its first attempt.
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

// canBegin reports whether a move, or the read of due times for it, is to begin now.
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

// eachTurn divides the scheduled messages into turns: the messages of one turn, maxMoves at most, are moved together.
// eachTurn calls f for each turn, with the due time of its first message, and with the time at which its move is to
// begin. If many messages are due at one time, later turns wait for earlier ones, so the moves of later turns begin
// longer before the due time.
func (m *dueMover) eachTurn(f func(due, begin time.Time)) {
	lead := m.lead.current()
	wait := m.cache.notBegun()
	for i := 0; i < len(wait); i += maxMoves {
		turns := time.Duration(i/maxMoves) * lead / (maxDueReads + 1)
		f(wait[i].At, wait[i].At.Add(-min(lead+turns, leadMax)))
	}
}

// startReads begins to read the messages of the next moves, and further due times if few are left.
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

// startRead begins to read messages that become due, and to find their positions.
func (m *dueMover) startRead(ctx context.Context, dues []lane.DueTime) {
	answer, low, room := make(chan dueRead, 1), m.positions.sentBelow, m.keys.leftRoom()
	room.bytes /= maxDueReads // up to maxDueReads reads share the room
	m.moves.reading = append(m.moves.reading, answer)
	go func() {
		answer <- readDue(ctx, m.laneScope, m.positions, dues, low, &room)
		m.notify()
	}()
}

// pickTurn returns the messages that are to be moved now, and those that become due soon after, because they can share
// the transaction. It returns maxMoves messages at most.
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

// readDueTimes begins to read the earliest due times, unless such a read is under way.
func (m *dueMover) readDueTimes(ctx context.Context) {
	if m.cache.reading != nil {
		return
	}
	answer := make(chan duePage, 1)
	m.cache.beginLoad(answer)
	go func() {
		dues, more, err := m.store.DeliveryState().ReadDueTimes(ctx, m.lane, dueCacheMax)
		answer <- duePage{dues, more, err}
		m.notify()
	}()
}

// invalidateDueTimes requests another read of the due times, because a message was cancelled or rescheduled.
func (m *dueMover) invalidateDueTimes() { m.cache.invalidateAt(m.now()) }

// takeDueTimes takes over the due times that were read.
func (m *dueMover) takeDueTimes() {
	select {
	case p := <-m.cache.reading: // nil, and so never ready, if no read is under way
		if m.moves.err = cmp.Or(m.moves.err, p.err); p.err == nil {
			m.cache.replaceWith(p)
			m.moves.recordAnswer()
		}
	default:
	}
}

// nextDueAt returns the time before which no scheduled message becomes due; zero = none does. In a sealed lane no
// message becomes due: the scheduled messages are delivered in the next epoch, or in this lane after the seal was
// removed. The removal of the seal raises the request number in head, so the holder then reads the due times.
func (m *dueMover) nextDueAt() time.Time {
	if m.isSealed {
		return time.Time{}
	}
	return m.cache.nextDueAt()
}

// nextReadAt returns when the next move may begin if no news comes before; zero = the move has to wait for news, or no
// move is known.
func (m *dueMover) nextReadAt() time.Time {
	isBusy := len(m.moves.reading) > 0 || len(m.moves.ready) >= maxReady
	if isBusy || !m.cache.isLoaded && m.cache.reading != nil {
		return time.Time{}
	}
	return m.nextMoveAt()
}

// hasToReadFirst reports whether due times have to be read before the next message is chosen, because a due message may
// go before it.
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
