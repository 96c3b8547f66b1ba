package drain

import (
	"context"
	"time"
)

// waiter lets a session wait for news and wakes. News comes when a read, or the write of a move, has ended: both run
// beside the session. A wake comes from the rest of the process.
type waiter struct {
	now  func() time.Time
	wake <-chan struct{} // the lane may have work: a message was appended, or a ticket or the sweep has come
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

// startTimer returns a channel that gets a value at the given time; nil if the time is zero or past.
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

// sleepOrWake waits until d has passed, news or a wake comes, or the session ends. It reports whether a wake came.
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

// sleepOrNews waits until d has passed, news comes, or the session ends.
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

// sleepThroughNews waits until d has passed or the session ends. It ignores news, because the failure of a read is
// news, too: otherwise reads that fail would follow each other without a pause.
func (w *waiter) sleepThroughNews(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}
}
