package drain

import (
	"sync"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// offersMax and offersBytes bound what a process keeps of what it has just filed. A
	// drain that keeps up takes it within milliseconds; one that is behind reads pages.
	recentAppendsMax   = 64
	recentAppendsBytes = 1 << 20
)

// recentAppends are messages of a lane that this process has just filed, so that its own drain
// need not read them back: at a trickle that saves a query and its time for each. They are
// a copy of the log and never more: what is missing here is read there.
type recentAppends struct {
	mu      sync.Mutex
	bySeq   map[int64]weir.Message
	bytes   int
	isFresh bool // some were put since the lane was woken for them
}

// addMessages keeps messages for a while. What does not fit makes room for the newer.
func (o *recentAppends) addMessages(messages []weir.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isFresh = true
	for _, m := range messages {
		if o.bySeq == nil || len(o.bySeq) >= recentAppendsMax || o.bytes+m.Size > recentAppendsBytes {
			o.bySeq, o.bytes = map[int64]weir.Message{}, 0
		}
		if m.Size <= recentAppendsBytes {
			o.bySeq[m.ID.Seq] = m
			o.bytes += m.Size
		}
	}
}

// takeFresh reports, once, whether messages were put for which the lane was not woken yet.
func (o *recentAppends) takeFresh() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	fresh := o.isFresh
	o.isFresh = false
	return fresh
}

// takeFrom takes out the messages that follow each other from seq on, and lets go of all
// before them.
func (o *recentAppends) takeFrom(seq int64) []*lane.Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s := range o.bySeq {
		if s < seq {
			o.dropSeq(s)
		}
	}
	var entries []*lane.Entry
	for ; ; seq++ {
		m, ok := o.bySeq[seq]
		if !ok {
			return entries
		}
		entries = append(entries, lane.NewEntry(m))
		o.dropSeq(seq)
	}
}

func (o *recentAppends) dropSeq(seq int64) {
	o.bytes -= o.bySeq[seq].Size
	delete(o.bySeq, seq)
}
