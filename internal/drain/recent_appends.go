package drain

import (
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// recentAppendsMax and recentAppendsBytes bound the number and the total size of the messages
	// in recentAppends. Usually the holder takes a message within milliseconds. A slower holder
	// reads pages of the log instead.
	recentAppendsMax   = 64
	recentAppendsBytes = 1 << 20
)

// recentAppends has messages that this process has just appended to a lane. If this process is also
// the holder of the lane, it need not read these messages from storage. A message that is missing
// here is read from the log. recentAppends is safe for concurrent use.
type recentAppends struct {
	mu      sync.Mutex
	bySeq   map[int64]weir.Message
	bytes   int                 // size of all bodies in bySeq
	room    *semaphore.Weighted // of all lanes of the process; see laneMemory
	isFresh bool                // messages were added after the last call of takeFresh

	highest int64 // the highest sequence number of a message of this process
	foreign foreignMessage
}

// foreignMessage is the last message that another process has appended, as far as this process
// knows.
type foreignMessage struct {
	seq    int64
	seenAt time.Time // zero = there is none
}

// addMessages keeps messages for takeFrom. If there is no room for a message, addMessages drops all
// earlier messages.
func (r *recentAppends) addMessages(messages []weir.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isFresh = true
	for _, m := range messages {
		r.highest = max(r.highest, m.ID.Seq)
		if m.ID.Seq == r.foreign.seq {
			// the holder read the message before the append had its answer
			r.foreign = foreignMessage{}
		}
		if r.bySeq == nil || len(r.bySeq) >= recentAppendsMax || r.bytes+m.Size > recentAppendsBytes {
			r.dropAll()
		}
		if m.Size <= recentAppendsBytes && r.room.TryAcquire(int64(m.Size)) {
			r.bySeq[m.ID.Seq] = m
			r.bytes += m.Size
		}
	}
}

// noteRead is called when the holder has read messages of the log. The argument is the last
// sequence number.
func (r *recentAppends) noteRead(seq int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq > r.highest {
		r.foreign = foreignMessage{seq, now}
	}
}

// foreignSeenAt returns when the holder last read a message of another process. It is zero if it
// saw none.
func (r *recentAppends) foreignSeenAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.foreign.seenAt
}

// takeFresh reports whether messages were added after the last call of takeFresh.
func (r *recentAppends) takeFresh() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFresh := r.isFresh
	r.isFresh = false
	return isFresh
}

// takeFrom removes and returns the messages with consecutive sequence numbers from seq on. It drops
// messages with lower numbers. The store is that of the lane.
func (r *recentAppends) takeFrom(seq int64, store *lane.Store) []*lane.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.bySeq {
		if s < seq {
			r.dropSeq(s)
		}
	}
	var entries []*lane.Entry
	for ; ; seq++ {
		m, ok := r.bySeq[seq]
		if !ok {
			return entries
		}
		entries = append(entries, store.NewEntry(m))
		r.dropSeq(seq)
	}
}

// dropAll is called when there is no room for a further message.
func (r *recentAppends) dropAll() {
	r.room.Release(int64(r.bytes))
	r.bySeq, r.bytes = map[int64]weir.Message{}, 0
}

func (r *recentAppends) dropSeq(seq int64) {
	r.room.Release(int64(r.bySeq[seq].Size))
	r.bytes -= r.bySeq[seq].Size
	delete(r.bySeq, seq)
}
