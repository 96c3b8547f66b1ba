package drain

import (
	"context"
	"time"
)

// waiter lets a session wait. News come from reads, requests to the CMS and commits that run beside the session;
// wakes come from the rest of the process.
type waiter struct {
	now  func() time.Time
	wake <-chan struct{} // a message was appended, or a ticket has come
	news chan struct{}
	open context.Context // ends when the session must not begin another request
}

// notify wakes the session, if it waits. It is safe for concurrent use.
func (w *waiter) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// startTimer returns a channel that receives at a future time. It returns nil if the time is zero or past.
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

// sleepThroughNews waits for d, or the end of the session. It ignores news, because the failure of a read is news, too:
// otherwise the next read would begin at once, fail, and so on without a pause.
func (w *waiter) sleepThroughNews(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}
}
