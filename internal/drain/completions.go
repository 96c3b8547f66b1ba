package drain

import (
	"sync"

	"weir/internal/weir"
)

// completions tells whoever waits for it that a message has become final here. The zero value is
// ready. Safe for concurrent use.
type completions struct {
	mu      sync.Mutex
	waiting map[messageRef]map[chan struct{}]bool
}

// messageRef names a message of this epoch.
type messageRef struct {
	lane int
	seq  int64
}

// AwaitFinal gives a channel that is closed once this process has committed that the message is
// final, or the Drainer is closed, and a function that ends the waiting. What another
// process commits, it does not see.
func (d *Drainer) AwaitFinal(id weir.ID) (<-chan struct{}, func()) {
	f, at, ch := &d.completions, messageRef{id.Lane, id.Seq}, make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[messageRef]map[chan struct{}]bool{}
	}
	if f.waiting[at] == nil {
		f.waiting[at] = map[chan struct{}]bool{}
	}
	f.waiting[at][ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.waiting[at], ch); len(f.waiting[at]) == 0 {
			delete(f.waiting, at)
		}
	}
}

// endAll wakes all that wait: this process commits nothing more.
func (f *completions) endAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, all := range f.waiting {
		for ch := range all {
			close(ch)
		}
		delete(f.waiting, at)
	}
}

func (f *completions) notifyFinal(lane int, seqs []int64) {
	if len(seqs) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, seq := range seqs {
		at := messageRef{lane, seq}
		for ch := range f.waiting[at] {
			close(ch)
		}
		delete(f.waiting, at)
	}
}
