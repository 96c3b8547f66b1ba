package host

import (
	"context"
	"sync"
)

// inFlightCounts counts the invocations in flight on one instance. It counts HTTP requests apart from invocations of
// queues and timers, because a stopping host waits without limit only for HTTP requests.
type inFlightCounts struct {
	mu          sync.Mutex
	http, other int           // invocations in flight
	begun       int           // invocations since the instance's start, including those that have ended
	changed     chan struct{} // closed when an invocation ends; nil = no caller waits for that
}

func (n *inFlightCounts) beginInvocation(f *function) (end func()) {
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

func (n *inFlightCounts) readCounts() (http, other int, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changed == nil {
		n.changed = make(chan struct{})
	}
	return n.http, n.other, n.changed
}

// countBegun returns the number of invocations since the instance's start, including those that have ended.
func (n *inFlightCounts) countBegun() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.begun
}

// awaitOthers waits for queue and timer invocations, and reports whether all of them ended before ctx ended.
func (n *inFlightCounts) awaitOthers(ctx context.Context) bool {
	return n.awaitCounts(ctx, func(_, other int) bool { return other == 0 })
}

// awaitCounts waits until isReached returns true for the counts, and reports whether it did before ctx ended.
func (n *inFlightCounts) awaitCounts(ctx context.Context, isReached func(http, other int) bool) bool {
	for {
		http, other, changed := n.readCounts()
		if isReached(http, other) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
