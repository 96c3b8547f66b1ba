package clock

import (
	"context"
	"sync"
	"time"
)

// WithTimeout is context.WithTimeout, except that the timeout stands still while HoldTimeouts holds
// it. The cause of the ended context is context.DeadlineExceeded. The context has no deadline,
// because its end is not known.
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	t := &heldTimeout{left: d, cancel: cancel}
	t.outer, _ = parent.Value(heldKey{}).(*heldTimeout)
	t.start()

	return context.WithValue(ctx, heldKey{}, t), func() {
		t.hold()
		cancel(context.Canceled)
	}
}

// HoldTimeouts lets the timeouts stand still that WithTimeout has set for ctx and its parents,
// until the caller calls resume. It is for waits that are no part of the work, such as the wait for
// a turn.
func HoldTimeouts(ctx context.Context) (resume func()) {
	var held []*heldTimeout
	t, _ := ctx.Value(heldKey{}).(*heldTimeout)
	for ; t != nil; t = t.outer {
		t.hold()
		held = append(held, t)
	}

	return sync.OnceFunc(func() {
		for _, t := range held {
			t.release()
		}
	})
}

type heldKey struct{}

// heldTimeout is the timeout of one context.
type heldTimeout struct {
	outer  *heldTimeout // of the parent; nil = none
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	holds     int // number of holds; the timeout runs at 0
	timer     *time.Timer
	left      time.Duration // when the timer started
	startedAt time.Time
}

func (t *heldTimeout) start() {
	t.startedAt = time.Now()
	t.timer = time.AfterFunc(t.left, func() { t.cancel(context.DeadlineExceeded) })
}

func (t *heldTimeout) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds++; t.holds == 1 {
		t.timer.Stop()
		t.left -= time.Since(t.startedAt)
	}
}

func (t *heldTimeout) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds--; t.holds == 0 {
		t.start()
	}
}
