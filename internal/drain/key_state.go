package drain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// maxRetryBody and maxRetries bound the messages that stay in memory from an attempt until its retry. A retry whose
	// message is in memory begins on time, because it needs no read first.
	maxRetryBody = 16 << 10
	maxRetries   = 64
	// maxHeldBytes bounds the bytes of held messages' bodies in memory when a moved message is added. Further bodies
	// are fetched while other messages are sent.
	maxHeldBytes = 4 << 20
	// maxHeldEntries bounds the held messages in memory, with or without their bodies, when a moved message is added.
	// Further messages are read again before they are sent.
	maxHeldEntries = 4000
)

// keyState is a block: the queue of a key that waits, or of a single message that waits and lets later ones of its key
// go ahead (onFailure: skip). It has the stored row, and the held messages that the holder has in memory.
type keyState struct {
	lane.KeyBlock
	firstLogPos int64         // the key's log messages below this number go before the first held message; 0 = none do
	waitLogPos  int64         // no held message is sent before the log was read up to this number; 0 = no such limit
	isMixed     bool          // a due message may be among the held ones, or may join before them
	first       *lane.Entry   // the first held message; nil = it is not in memory
	rest        []*lane.Entry // held messages that follow "first" in the queue; all of them if isInMemory
}

// isInMemory reports whether all held messages are in memory.
func (k *keyState) isInMemory() bool { return k.first != nil && k.HeldCount == int64(1+len(k.rest)) }

// last returns the last held message. All must be in memory.
func (k *keyState) last() *lane.Entry {
	if n := len(k.rest); n > 0 {
		return k.rest[n-1]
	}
	return k.first
}

// dropFirst is called when held messages leave the queue. If only the first one leaves and all others are in memory,
// the next one becomes the first. Otherwise no message stays in memory. The caller reduces HeldCount.
func (k *keyState) dropFirst(gone []lane.HeldMessage) {
	if len(k.rest) > 0 && k.isInMemory() && len(gone) == 1 && gone[0].OrderPos == k.first.AsHeld().OrderPos {
		k.first, k.rest = k.rest[0], k.rest[1:]
		k.firstLogPos = k.first.AfterLog()
		return
	}
	k.first, k.rest, k.firstLogPos = nil, nil, 0
}

// join returns the state of the block after a moved message has joined its queue, and leaves k as it was. If there is
// no block yet, k is nil.
func (k *keyState) join(e *lane.Entry, logPos int64, room *memoryRoom) *keyState {
	if k == nil {
		return &keyState{
			KeyBlock: lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(), NextAt: e.Message.DueAt, HeldCount: 1,
				IsUntried: true},
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
	joined.isMixed = true
	joined.HeldCount++
	return &joined
}

// isBehind reports whether all held messages may have later positions than the moved message e.
func (k *keyState) isBehind(e *lane.Entry, logPos int64) bool {
	if k.first != nil {
		return e.AsHeld().OrderPos < k.first.AsHeld().OrderPos
	}
	return logPos < k.firstLogPos
}

// keyStates are the blocks of a lane, by id.
type keyStates struct {
	now            func() time.Time
	backoff        Backoff
	byID           map[string]*keyState
	lastReleasedAt time.Time // see lane.DueState; parked messages raise it, too
}

func newKeyStates(now func() time.Time, b Backoff) *keyStates {
	return &keyStates{now: now, backoff: b, byID: map[string]*keyState{}}
}

// loadBlocks takes over the stored blocks. If the time of a block is far ahead, a holder with a wrong clock has written
// it, so loadBlocks replaces it by the present time.
func (ks *keyStates) loadBlocks(stored []lane.KeyBlock) {
	for _, b := range stored {
		if ks.backoff.isFarAhead(b.NextAt, ks.now()) {
			b.NextAt = ks.now()
		}
		ks.byID[b.ID] = &keyState{KeyBlock: b, isMixed: true}
	}
}

// findHolding returns the block in which a held message waits.
func (ks *keyStates) findHolding(e *lane.Entry) *keyState {
	if k := ks.byID[e.BlockID()]; k != nil {
		return k
	}
	return ks.byID[e.KeyHash()] // the message was parked behind others of its key
}

// openFor returns the block of a message, a new one if there is none.
func (ks *keyStates) openFor(e *lane.Entry) *keyState {
	k := ks.byID[e.BlockID()]
	if k == nil {
		k = &keyState{KeyBlock: lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash()}}
		ks.byID[k.ID] = k
	}
	return k
}

// holdFromLog counts a message of the log as held, because it has to wait, and returns its block.
func (ks *keyStates) holdFromLog(e *lane.Entry) *keyState {
	k := ks.openFor(e)
	k.HeldCount++
	k.firstLogPos = 0 // the key's messages in the log are parked behind this message
	return k
}

// requeueDead counts a replayed message as held, and returns its block. It drops the block's first message from memory,
// so the stored queue decides which message is next.
func (ks *keyStates) requeueDead(e *lane.Entry) *keyState {
	k := ks.openFor(e)
	k.HeldCount++
	k.NextAt, k.first, k.firstLogPos, k.isMixed, k.IsUntried = ks.now(), nil, 0, true, true
	return k
}

// unpark takes held messages out of a block. The next one may be sent at once, or at its due time.
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
		k.NextAt = laterOf(k.NextAt, k.first.Message.DueAt)
	}
	ch.SaveBlock(k.KeyBlock)
}

// nextParkedAt returns the NextAt of a message that is parked in a pause of its key. It is later than the NextAt of
// each message that was moved or parked before. So messages are sent in the order in which they were moved or parked.
func (ks *keyStates) nextParkedAt() time.Time {
	if ks.lastReleasedAt.IsZero() {
		ks.lastReleasedAt = storedTime(ks.now())
	}
	ks.lastReleasedAt = ks.lastReleasedAt.Add(time.Microsecond)
	return ks.lastParkedAt()
}

// lastParkedAt returns the NextAt of the message that was moved or parked last. It is lastReleasedAt, or an earlier
// time if the clock of a former holder has put lastReleasedAt too far ahead.
func (ks *keyStates) lastParkedAt() time.Time {
	return limitTime(ks.lastReleasedAt, ks.now().Add(maxSkew))
}

// firstAhead returns, by key hash, the first of the key's blocks that have a LogWaitsFrom. The message of such a block
// was moved or parked, and later messages of the log wait for its first attempt. firstAhead returns nil if there are no
// such blocks.
func (ks *keyStates) firstAhead() map[string]*keyState {
	var ahead map[string]*keyState
	for _, k := range ks.byID {
		if k.LogWaitsFrom == 0 {
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
		if k.LogWaitsFrom == 0 || ahead[k.KeyHash] == k {
			f(k)
		}
	}
}

// listOverdue returns the blocks whose time has come, the one that has waited longest first.
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

// findDue returns the first of the blocks that isUsable accepts, and whose time is "by" or earlier. It returns nil if
// there is none.
func (ks *keyStates) findDue(by time.Time, isUsable func(*keyState) bool) *keyState {
	var first *keyState
	for _, k := range ks.byID {
		if !k.NextAt.After(by) && (first == nil || compareStates(k, first) < 0) && isUsable(k) {
			first = k
		}
	}
	return first
}

func compareStates(a, b *keyState) int {
	return cmp.Or(a.NextAt.Compare(b.NextAt), strings.Compare(a.ID, b.ID))
}

// firstWithoutBody looks at the first message of each block except one, and returns those that are in memory without
// their bodies. It returns up to limit of them, the earliest first.
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
	if len(e.Message.Body) > maxRetryBody || ks.countRetries() >= maxRetries {
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

// memoryRoom is the room in memory for held messages.
type memoryRoom struct{ entries, bytes int }

// leftRoom returns the room that the messages in memory leave.
func (ks *keyStates) leftRoom() memoryRoom {
	room := memoryRoom{maxHeldEntries, maxHeldBytes}
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

// keep takes room for a message, and returns it. If there is no room for its body, it drops the body; if there is none
// for the message, it returns nil.
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
