package drain

import (
	"sync"

	"weir/internal/weir"
)

// completions notifies callers that wait for messages to become final. The zero value is ready. completions is safe for
// concurrent use.
type completions struct {
	mu      sync.Mutex
	waiting map[messageRef]map[chan struct{}]bool // the channels of the callers, by message
}

// messageRef names a message of this epoch.
type messageRef struct {
	lane int
	seq  int64
}

// AwaitFinal returns a channel that is closed when this process commits the final stage of the message, or when Close
// is called. A commit by another process does not close the channel. The caller calls the returned function when its
// wait is over.
func (d *Drainer) AwaitFinal(id weir.ID) (<-chan struct{}, func()) {
	f, ref, ch := &d.completions, messageRef{id.Lane, id.Seq}, make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[messageRef]map[chan struct{}]bool{}
	}
	if f.waiting[ref] == nil {
		f.waiting[ref] = map[chan struct{}]bool{}
	}
	f.waiting[ref][ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.waiting[ref], ch); len(f.waiting[ref]) == 0 {
			delete(f.waiting, ref)
		}
	}
}

// endAll closes all channels, because the Drainer is being closed.
func (f *completions) endAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, all := range f.waiting {
		for ch := range all {
			close(ch)
		}
		delete(f.waiting, ref)
	}
}

// notifyFinal closes the channels of callers that wait for the given messages of a lane.
func (f *completions) notifyFinal(lane int, seqs []int64) {
	if len(seqs) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seq := range seqs {
		ref := messageRef{lane, seq}
		for ch := range f.waiting[ref] {
			close(ch)
		}
		delete(f.waiting, ref)
	}
}
