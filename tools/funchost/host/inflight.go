package host

import (
	"context"
	"sync"
)

// inFlight counts the invocations in flight on one instance. A stopping host waits without limit for
// HTTP requests, and for ten seconds for the others.
type inFlight struct {
	mu          sync.Mutex
	http, other int
	begun       int
	changed     chan struct{} // closed and made anew whenever an invocation ends
}

func (n *inFlight) begin(f *function) (end func()) {
	count := &n.other
	if f.isHTTP() {
		count = &n.http
	}
	n.mu.Lock()
	*count++
	n.begun++
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		*count--
		if n.changed != nil {
			close(n.changed)
			n.changed = nil
		}
	}
}

func (n *inFlight) now() (http, other int, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.http, n.other, n.changed
}

// count returns how many invocations there have been.
func (n *inFlight) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.begun
}

// awaitOthers waits for queue and timer invocations, and reports whether all have ended before ctx.
func (n *inFlight) awaitOthers(ctx context.Context) bool {
	return n.await(ctx, func(_, other int) bool { return other == 0 })
}

// await waits until holds does, and reports whether that was before ctx ended.
func (n *inFlight) await(ctx context.Context, holds func(http, other int) bool) bool {
	for {
		http, other, changed := n.now()
		if holds(http, other) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
