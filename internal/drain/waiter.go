package drain

import (
	"context"
	"time"
)

// waiter is the sleep of a session. A session waits for a time, for news from a read, a request
// to the CMS or a commit beside it, or for a wake from outside.
type waiter struct {
	now  func() time.Time
	wake <-chan struct{} // a message was filed, or a ticket has come
	news chan struct{}
	open context.Context // ends when the session may begin nothing new
}

// notify wakes the session, if it waits. It is safe for concurrent use.
func (w *waiter) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// startTimer returns a channel that gets a value at a time, if that is still to come; a zero time
// never comes.
func (w *waiter) startTimer(at time.Time) (reached <-chan time.Time, stop func()) {
	if wait := at.Sub(w.now()); !at.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		return timer.C, func() { timer.Stop() }
	}
	return nil, func() {}
}

// takeWake reports whether there was a wake.
func (w *waiter) takeWake() bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// sleepOrWake waits for d, news, a wake, or the end of the session, and reports whether there was
// a wake.
func (w *waiter) sleepOrWake(ctx context.Context, d time.Duration) bool {
	if w.takeWake() {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.wake:
		return true
	case <-w.news:
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}
	return false
}

// sleepOrNews waits for d, news, or the end of the session.
func (w *waiter) sleepOrNews(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.news:
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}
}

// sleepThroughNews waits for d, or the end of the session. The failure of a read is news, too: a
// wait that it ends would let the next read begin at once, and so on without a pause.
func (w *waiter) sleepThroughNews(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}
}
