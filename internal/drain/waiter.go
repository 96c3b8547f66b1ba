package drain

import (
	"context"
	"time"
)

// waiter lets a session wait for news and for wakes. News means that another goroutine has ended a read, or a write
// that moves due messages. A wake means that the lane may have work.
type waiter struct {
	now  func() time.Time
	wake <-chan struct{} // gets a wake when a message was appended, or a ticket or the sweep has come
	news chan struct{}
	open context.Context // ends when the session must not begin another request
}

// notify sends news to the session. It is safe for concurrent use.
func (w *waiter) notify() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// startTimer returns a channel that gets a value at the given time. The channel is nil if the time is zero or past.
func (w *waiter) startTimer(at time.Time) (reached <-chan time.Time, stop func()) {
	if wait := at.Sub(w.now()); !at.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		return timer.C, func() { timer.Stop() }
	}
	return nil, func() {}
}

// takeWake reports whether a wake has come that was not taken yet.
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

// sleepThroughNews waits until d has passed or the session ends. It ignores news, because a failed read is news, too:
// if news ended the wait, a failing read would be repeated without a pause.
func (w *waiter) sleepThroughNews(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.open.Done():
	case <-ctx.Done():
	}
}
