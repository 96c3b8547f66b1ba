package host

import (
	"context"
	"sync"
)

// inFlightCounts counts the invocations in flight on one instance. It counts HTTP requests apart
// from queue and timer invocations, because a stopping host can limit its wait for queue and timer
// invocations. Its wait for HTTP requests has no such limit.
type inFlightCounts struct {
	mu          sync.Mutex
	http, other int // invocations in flight
	// invocations since the instance's start, including those that have ended
	begun   int
	changed chan struct{} // closed when an invocation ends; nil = no goroutine waits
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

func (n *inFlightCounts) countBegun() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.begun
}

// awaitOthers waits until no queue or timer invocation is in flight. It returns false if ctx ends
// first.
func (n *inFlightCounts) awaitOthers(ctx context.Context) bool {
	return n.awaitCounts(ctx, func(_, other int) bool { return other == 0 })
}

// awaitCounts waits until isReached returns true. It returns false if ctx ends first.
func (n *inFlightCounts) awaitCounts(ctx context.Context,
	isReached func(http, other int) bool) bool {
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
