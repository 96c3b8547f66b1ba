package drain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// maxRetryBody is the size, in bytes, of the largest body that stays in memory until its
	// message is retried. maxRetries is the largest number of messages that stay in memory in this
	// way. Their retries begin on time, because no read is needed first.
	maxRetryBody = 16 << 10
	maxRetries   = 64
	// maxHeldBytes bounds the bodies of held messages in memory, in bytes. The holder checks it
	// only for due messages that join a block. If there is no room for the body of such a message,
	// the holder fetches the body later, while it sends other messages.
	maxHeldBytes = 4 << 20
	// maxHeldEntries bounds the number of held messages in memory. The holder checks it only for
	// due messages that join a block. If there is no room for such a message, the holder reads the
	// message again before it sends it.
	maxHeldEntries = 4000
)

// keyState is a block as the holder has it in memory: the block's row, and some or all of its held
// messages. A block is the queue of a blocked key, or a single message whose retries do not block
// its key (onFailure: skip). Only the methods in this file change a keyState; findFault has its
// invariant.
type keyState struct {
	lane.KeyBlock
	// the key's log messages below this number go before the first held message; 0 = none
	firstLogPos int64
	// no held message is sent until the log is read up to this number; 0 = no such limit
	waitLogPos int64
	// a due message may be among the held messages, or may join the queue before them
	isMixed bool
	first   *lane.Entry // the first held message; nil = it is not in memory
	// the next held messages after "first"; further ones may not be in memory
	rest []*lane.Entry
}

// newKeyState returns the state of the block that a message will open.
func newKeyState(e *lane.Entry, isUntried bool) *keyState {
	return &keyState{KeyBlock: lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(),
		IsUntried: isUntried}}
}

// findFault returns the part of the invariant that the state breaks; "" = none. Tests call it after
// each change. A damaged row can have any number of held messages, so the number alone is no part
// of the invariant.
func (k *keyState) findFault() string {
	switch {
	case k.IsParked && k.LogWaitsFrom == 0:
		return "a parked single message holds no log message back"
	case (k.MissingContract == "") != k.MissingSince.IsZero():
		return "a missing contract and its time do not belong together"
	case (k.BrakedContract == "") != (k.BrakedBy == ""):
		return "a brake and its fingerprint do not belong together"
	case k.first != nil && k.HeldCount < int64(1+len(k.rest)):
		return "more messages are in memory than are held"
	}

	return ""
}

// stateChanged is called at the end of each change. Tests replace it, to check the invariant.
var stateChanged = func(*keyState) {}

// waitUntil sets the time of the next attempt.
func (k *keyState) waitUntil(at time.Time) {
	k.NextAt = at
	stateChanged(k)
}

// deferUntil sets the time of the next attempt of a first message that had an attempt.
func (k *keyState) deferUntil(at time.Time) {
	k.NextAt, k.IsUntried = at, false
	stateChanged(k)
}

// recordTurn records that the first message had its turn in this round. No row is written: after a
// crash the message counts as untried again.
func (k *keyState) recordTurn() {
	k.IsUntried = false
	stateChanged(k)
}

// retryAt makes the first message wait for its retry after a failed attempt. kept is that message,
// or nil if it does not stay in memory. Log messages no longer wait for the first attempt of a
// single message.
func (k *keyState) retryAt(at time.Time, kept *lane.Entry) {
	k.NextAt, k.IsUntried, k.LogWaitsFrom, k.IsParked, k.first = at, false, 0, false, kept
	stateChanged(k)
}

// waitForContract makes the first message wait until its contract is back, or until a time.
func (k *keyState) waitForContract(name string, since, until time.Time) {
	k.MissingContract, k.MissingSince, k.NextAt = name, since, until
	stateChanged(k)
}

// waitForBrake makes the first message wait until the brake of its contract opens, or until a time.
func (k *keyState) waitForBrake(contract, fingerprint string, until time.Time) {
	k.BrakedContract, k.BrakedBy, k.NextAt = contract, fingerprint, until
	stateChanged(k)
}

// endWaits records that the first message waits for no contract and no brake.
func (k *keyState) endWaits() {
	k.MissingContract, k.MissingSince, k.BrakedContract, k.BrakedBy = "", time.Time{}, "", ""
	stateChanged(k)
}

// holdNext counts a message of the log as held, behind the others. It reports whether the message
// may have to be sent before the first one; then no message stays in memory. wasTried is true if
// the message had its turn in this round: the block is then no longer untried.
func (k *keyState) holdNext(wasTried bool) (mayGoFirst bool) {
	k.HeldCount++
	if wasTried {
		k.IsUntried = false
	}

	if k.isMixed {
		k.first, k.rest = nil, nil
	}

	stateChanged(k)

	return k.isMixed
}

// mixOrder records that held messages may be in another order than that of the log.
func (k *keyState) mixOrder() { k.firstLogPos, k.isMixed = 0, true }

// parkSingle makes the log messages of the key, from the number on, wait for the first attempt of a
// single message that was parked.
func (k *keyState) parkSingle(seq int64) { k.LogWaitsFrom, k.IsParked = seq, true }

// releaseSingle makes the log messages of the key, from the number on, wait for the first attempt
// of a single message that was released.
func (k *keyState) releaseSingle(logPos int64, releasedAt, nextAt time.Time) {
	k.LogWaitsFrom, k.IsParked, k.ReleasedAt, k.NextAt = logPos, false, releasedAt, nextAt
	stateChanged(k)
}

// orderFirst records the position of the first held message.
func (k *keyState) orderFirst(h lane.HeldMessage) { k.firstLogPos = h.AfterLog() }

// waitForLog makes the held messages wait until the log is read up to the position of one of them.
func (k *keyState) waitForLog(h lane.HeldMessage) { k.waitLogPos = h.AfterLog() }

// setAside makes the block wait until a time, because its rows contradict each other. It forgets
// what was read of them.
func (k *keyState) setAside(until time.Time) {
	k.NextAt = until
	k.first, k.rest, k.firstLogPos, k.waitLogPos = nil, nil, 0, 0
	stateChanged(k)
}

// keepFirst keeps the first held message in memory.
func (k *keyState) keepFirst(e *lane.Entry) {
	k.first = e
	stateChanged(k)
}

// isInMemory reports whether all held messages are in memory.
func (k *keyState) isInMemory() bool {
	return k.first != nil && k.HeldCount == int64(1+len(k.rest))
}

// last returns the last held message. All held messages must be in memory.
func (k *keyState) last() *lane.Entry {
	if n := len(k.rest); n > 0 {
		return k.rest[n-1]
	}
	return k.first
}

// dropFirst is called when held messages leave the queue. If only the first message leaves, and all
// held messages are in memory, the second message becomes the first. Otherwise dropFirst removes
// all messages from memory. The caller reduces HeldCount.
func (k *keyState) dropFirst(gone []lane.HeldMessage) {
	if len(k.rest) > 0 && k.isInMemory() && len(gone) == 1 &&
		gone[0].OrderPos == k.first.AsHeld().OrderPos {
		k.first, k.rest = k.rest[0], k.rest[1:]
		k.firstLogPos = k.first.AfterLog()
		return
	}

	k.first, k.rest, k.firstLogPos = nil, nil, 0
}

// join returns the state of the block after the due message e has joined the queue. It does not
// change k, which is nil if there is no block yet. logPos is the sequence number of the first log
// message that goes after e.
func (k *keyState) join(e *lane.Entry, logPos int64, room *memoryRoom) *keyState {
	if k == nil {
		return &keyState{
			KeyBlock: lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(), NextAt: e.Message.DueAt,
				HeldCount: 1, IsUntried: true},
			firstLogPos: logPos, first: room.keep(e), isMixed: true,
		}
	}

	joined := *k
	switch {
	case k.isBehind(e, logPos):
		joined.first, joined.rest, joined.firstLogPos = nil, nil, 0
	case k.isInMemory() && k.last().AsHeld().OrderPos < e.AsHeld().OrderPos:
		if kept := room.keep(e); kept != nil {
			joined.rest = append(slices.Clip(joined.rest), kept)
		}
	}

	// e may have to be sent before that message
	if joined.MissingContract != "" || joined.BrakedContract != "" {
		joined.NextAt = clock.Earlier(joined.NextAt, e.Message.DueAt)
	}

	joined.isMixed = true
	joined.HeldCount++
	stateChanged(&joined)

	return &joined
}

// isBehind reports whether the due message e may have to go before the first held message.
func (k *keyState) isBehind(e *lane.Entry, logPos int64) bool {
	if k.first != nil {
		return e.AsHeld().OrderPos < k.first.AsHeld().OrderPos
	}
	return logPos < k.firstLogPos
}

// keyStates are the blocks of a lane, by id.
type keyStates struct {
	now     func() time.Time
	backoff Backoff
	memory  *laneMemory
	byID    map[string]*keyState
	// raised by nextParkedAt and by each due message that joins a block; stored in tail
	lastReleasedAt time.Time
}

func newKeyStates(now func() time.Time, b Backoff) *keyStates {
	return &keyStates{now: now, backoff: b, byID: map[string]*keyState{}}
}

// loadBlocks takes over the stored blocks. It calls adoptMissing for the blocks that wait for a
// missing contract, and adoptBraked for those that wait for a brake. If the NextAt of another block
// is too far ahead, a holder with a wrong clock has written the time, and loadBlocks replaces the
// time by the present time.
func (ks *keyStates) loadBlocks(stored []lane.KeyBlock, adoptMissing, adoptBraked func(*keyState)) {
	for _, b := range stored {
		k := &keyState{KeyBlock: b, isMixed: true}
		switch {
		case k.MissingContract != "":
			adoptMissing(k)
		case k.BrakedContract != "":
			adoptBraked(k)
		case ks.backoff.isFarAhead(k.NextAt, ks.now()):
			k.waitUntil(ks.now())
		}

		ks.byID[k.ID] = k
	}
}

// findHolding returns the block in which a held message waits.
func (ks *keyStates) findHolding(e *lane.Entry) *keyState {
	if k := ks.byID[e.BlockID()]; k != nil {
		return k
	}
	return ks.byID[e.KeyHash()] // a message with onFailure: skip can also wait in its key's block
}

// openFor returns the block of a message. If there is no block, it adds a new block.
func (ks *keyStates) openFor(e *lane.Entry) *keyState {
	k := ks.byID[e.BlockID()]
	if k == nil {
		k = newKeyState(e, false)
		ks.byID[k.ID] = k
	}
	return k
}

// holdFromLog counts a message of the log as held, and returns the message's block.
func (ks *keyStates) holdFromLog(e *lane.Entry) *keyState {
	k := ks.openFor(e)
	k.HeldCount++
	k.firstLogPos = 0 // no log message of the key goes before this message
	stateChanged(k)
	return k
}

// requeueDead counts a replayed message as held, and returns the message's block. It removes the
// block's first message from memory, because the replayed message may go before that message.
func (ks *keyStates) requeueDead(e *lane.Entry) *keyState {
	k := ks.openFor(e)
	k.HeldCount++
	k.NextAt, k.IsUntried, k.first, k.rest = ks.now(), true, nil, nil
	k.mixOrder()
	stateChanged(k)
	return k
}

// unpark takes held messages out of a block. The next message of the block may then be sent at
// once, or at its due time.
func (ks *keyStates) unpark(k *keyState, ch *lane.Change, gone ...lane.HeldMessage) {
	for _, h := range gone {
		ch.Unhold(k.ID, h.OrderPos)
	}

	k.dropFirst(gone)

	if k.HeldCount -= int64(len(gone)); k.HeldCount <= 0 {
		delete(ks.byID, k.ID)
		ch.RemoveBlock(k.ID)
		return
	}

	k.NextAt, k.IsUntried = ks.now(), true
	if k.first != nil {
		k.NextAt = clock.Later(k.NextAt, k.first.Message.DueAt)
	}

	stateChanged(k)
	ch.SaveBlock(k.KeyBlock)
}

// nextParkedAt returns the NextAt for a message that joins a block because its key is paused. Each
// such message, and each due message that joins a block, raises lastReleasedAt. So these messages
// are sent in the order in which they joined.
func (ks *keyStates) nextParkedAt() time.Time {
	if ks.lastReleasedAt.IsZero() {
		ks.lastReleasedAt = storedTime(ks.now())
	}
	ks.lastReleasedAt = ks.lastReleasedAt.Add(time.Microsecond)
	return ks.lastParkedAt()
}

// lastParkedAt returns lastReleasedAt. If the wrong clock of a former holder has put lastReleasedAt
// too far ahead, lastParkedAt returns an earlier time instead.
func (ks *keyStates) lastParkedAt() time.Time {
	return clock.Earlier(ks.lastReleasedAt, ks.now().Add(maxSkew))
}

// goesAhead reports whether later log messages of the key wait for the first attempt of the block's
// single message (onFailure: skip). They do not wait while the message waits for its contract.
func (k *keyState) goesAhead() bool { return k.LogWaitsFrom != 0 && k.MissingContract == "" }

// firstAhead considers only the blocks that go ahead of the log. It returns the first such block of
// each key, by key hash, or nil if there are no such blocks.
func (ks *keyStates) firstAhead() map[string]*keyState {
	var ahead map[string]*keyState
	for _, k := range ks.byID {
		if !k.goesAhead() {
			continue
		}

		if ahead == nil {
			ahead = map[string]*keyState{}
		}

		if first := ahead[k.KeyHash]; first == nil || k.GoesBefore(&first.KeyBlock) {
			ahead[k.KeyHash] = k
		}
	}

	return ahead
}

// eachFirst calls f with each block that waits for no other block of its key.
func (ks *keyStates) eachFirst(f func(*keyState)) {
	ahead := ks.firstAhead()
	for _, k := range ks.byID {
		if !k.goesAhead() || ahead[k.KeyHash] == k {
			f(k)
		}
	}
}

// listOverdue returns the blocks whose NextAt has come, sorted by NextAt.
func (ks *keyStates) listOverdue() (due []*keyState) {
	now := ks.now()
	for _, k := range ks.byID {
		if !k.NextAt.After(now) {
			due = append(due, k)
		}
	}

	slices.SortFunc(due, compareStates)
	return due
}

// findDue considers the blocks whose NextAt is "by" or earlier, and that isUsable accepts. It
// returns the block with the earliest NextAt, or nil if there is no such block.
func (ks *keyStates) findDue(by time.Time, isUsable func(*keyState) bool) *keyState {
	var first *keyState
	for _, k := range ks.byID {
		if !k.NextAt.After(by) && (first == nil || compareStates(k, first) < 0) && isUsable(k) {
			first = k
		}
	}
	return first
}

// countWaiting counts held messages: those of blocks whose time has come (ready), and those of
// untried blocks whose time comes by the given time (soon).
func (ks *keyStates) countWaiting(now, by time.Time) (ready, soon int) {
	for _, k := range ks.byID {
		switch {
		case !k.NextAt.After(now):
			ready += int(k.HeldCount)
		case k.IsUntried && !k.NextAt.After(by):
			soon += int(k.HeldCount)
		}
	}

	return ready, soon
}

func compareStates(a, b *keyState) int {
	return cmp.Or(a.NextAt.Compare(b.NextAt), strings.Compare(a.ID, b.ID))
}

// firstWithoutBody considers the first message of each block other than "except". It returns the
// messages that are in memory without their bodies: up to limit messages, sorted by the NextAt of
// their blocks.
func (ks *keyStates) firstWithoutBody(except *keyState, limit int) (first []*lane.Entry) {
	var found []*keyState
	for _, k := range ks.byID {
		if k == except || k.first == nil || k.first.HasBody() ||
			len(found) == limit && compareStates(k, found[limit-1]) > 0 {
			continue
		}

		i, _ := slices.BinarySearchFunc(found, k, compareStates)
		found = slices.Insert(found, i, k)
		found = found[:min(len(found), limit)]
	}

	for _, k := range found {
		first = append(first, k.first)
	}

	return first
}

// keepRetry returns the message if it may stay in memory until its retry, else nil.
func (ks *keyStates) keepRetry(e *lane.Entry) *lane.Entry {
	most := ks.memory.shareOf(maxRetries*maxRetryBody) / maxRetries
	if len(e.Message.Body) > most || ks.countRetries() >= maxRetries {
		return nil
	}
	return e
}

// countRetries returns how many messages in memory wait for a retry.
func (ks *keyStates) countRetries() (n int) {
	for _, k := range ks.byID {
		if k.first != nil && k.first.Stage == weir.Retrying {
			n++
		}
	}
	return n
}

// memoryRoom is the room that is left in memory for held messages: a number of messages, and the
// bytes of their bodies.
type memoryRoom struct{ entries, bytes int }

// leftRoom returns the room that the held messages in memory leave for further messages.
func (ks *keyStates) leftRoom() memoryRoom {
	room := memoryRoom{maxHeldEntries, ks.memory.shareOf(maxHeldBytes)}
	for _, k := range ks.byID {
		if k.first != nil {
			room.countEntry(k.first)
		}
		for _, e := range k.rest {
			room.countEntry(e)
		}
	}

	return room
}

// countEntry takes room for a message that is in memory already.
func (room *memoryRoom) countEntry(e *lane.Entry) {
	room.entries--
	if e.HasBody() {
		room.bytes -= e.Message.Size
	}
}

// takeBody takes room for a body if there is enough, and reports whether there was.
func (room *memoryRoom) takeBody(e *lane.Entry) bool {
	if room.bytes < e.Message.Size {
		return false
	}
	room.bytes -= e.Message.Size
	return true
}

// keep takes room for a message, and returns the message. If there is no room for the body, keep
// drops the body. If there is no room for the message, keep returns nil.
func (room *memoryRoom) keep(e *lane.Entry) *lane.Entry {
	if room.entries <= 0 {
		return nil
	}

	room.entries--
	if e.HasBody() && !room.takeBody(e) {
		e.DropBody()
	}

	return e
}

// storedTime returns a time in UTC, with the precision of a stored row.
func storedTime(at time.Time) time.Time { return at.UTC().Truncate(time.Microsecond) }
