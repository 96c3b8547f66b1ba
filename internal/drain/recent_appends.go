package drain

import (
	"sync"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// recentAppendsMax and recentAppendsBytes bound the number and the total size of the messages in recentAppends.
	// Usually the holder takes a message within milliseconds. A slower holder reads pages of the log instead.
	recentAppendsMax   = 64
	recentAppendsBytes = 1 << 20
)

// recentAppends has messages that this process has just appended to a lane. If this process is also the holder of the
// lane, it need not read these messages from storage. A message that is missing here is read from the log.
// recentAppends is safe for concurrent use.
type recentAppends struct {
	mu      sync.Mutex
	bySeq   map[int64]weir.Message
	bytes   int  // size of all bodies in bySeq
	isFresh bool // messages were added after the last call of takeFresh
}

// addMessages keeps messages for takeFrom. If there is no room for a message, addMessages drops all earlier messages.
func (r *recentAppends) addMessages(messages []weir.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isFresh = true
	for _, m := range messages {
		if r.bySeq == nil || len(r.bySeq) >= recentAppendsMax || r.bytes+m.Size > recentAppendsBytes {
			r.bySeq, r.bytes = map[int64]weir.Message{}, 0
		}
		if m.Size <= recentAppendsBytes {
			r.bySeq[m.ID.Seq] = m
			r.bytes += m.Size
		}
	}
}

// takeFresh reports whether messages were added after the last call of takeFresh.
func (r *recentAppends) takeFresh() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFresh := r.isFresh
	r.isFresh = false
	return isFresh
}

// takeFrom removes and returns the messages with consecutive sequence numbers from seq on. It drops messages with lower
// numbers. The store is that of the lane.
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

func (r *recentAppends) dropSeq(seq int64) {
	r.bytes -= r.bySeq[seq].Size
	delete(r.bySeq, seq)
}
