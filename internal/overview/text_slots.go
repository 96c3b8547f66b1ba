package overview

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// maxTextSearches limits the concurrent searches for a text, because each of them reads megabytes of bodies.
	maxTextSearches = 2
	// maxSlotWait is the time that a further search waits before it is refused. slotRetryAfter is the Retry-After of
	// the refusal.
	maxSlotWait    = 3 * time.Second
	slotRetryAfter = 5 * time.Second
)

// textSearchLimit allows maxTextSearches searches at a time. The zero value is ready.
type textSearchLimit struct {
	once  sync.Once
	slots *semaphore.Weighted
}

// acquireSlot waits for a slot. The caller must call done when its search has ended. The error is always Unavailable:
// no slot became free in time, or ctx ended.
func (t *textSearchLimit) acquireSlot(ctx context.Context) (done func(), err error) {
	t.once.Do(func() { t.slots = semaphore.NewWeighted(maxTextSearches) })
	limited, cancel := context.WithTimeout(ctx, maxSlotWait)
	defer cancel()
	if err := t.slots.Acquire(limited, 1); err != nil {
		return nil, &weir.Error{Kind: weir.Unavailable, Op: "search",
			Message: "other searches for a text are under way; try again", RetryAfter: slotRetryAfter, Err: err}
	}
	return func() { t.slots.Release(1) }, nil
}
