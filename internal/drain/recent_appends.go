package drain

import (
	"sync"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// recentAppendsMax and recentAppendsBytes bound the messages of a lane that a process keeps after it has filed
	// them. A holder that keeps up takes them within milliseconds. A holder that is behind reads pages of the log.
	recentAppendsMax   = 64
	recentAppendsBytes = 1 << 20
)

// recentAppends has messages of a lane that this process has just filed, so that its own drain need not read them back.
// If messages come one by one, that saves a query for each. If a message is missing here, the holder reads it from the
// log. recentAppends is safe for concurrent use.
type recentAppends struct {
	mu      sync.Mutex
	bySeq   map[int64]weir.Message
	bytes   int  // size of all bodies in bySeq
	isFresh bool // messages were added since the last takeFresh
}

// addMessages keeps messages until they are taken. If there is no room for a message, it drops all earlier ones.
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

// takeFresh reports whether messages were added since the last call.
func (r *recentAppends) takeFresh() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFresh := r.isFresh
	r.isFresh = false
	return isFresh
}

// takeFrom takes out the messages from seq on up to the first missing one, and drops those before seq.
func (r *recentAppends) takeFrom(seq int64) []*lane.Entry {
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
		entries = append(entries, lane.NewEntry(m))
		r.dropSeq(seq)
	}
}

func (r *recentAppends) dropSeq(seq int64) {
	r.bytes -= r.bySeq[seq].Size
	delete(r.bySeq, seq)
}
