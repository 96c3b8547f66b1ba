package overview

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// maxTextSearches limits the concurrent searches for a text, because each search reads
	// megabytes of bodies.
	maxTextSearches = 2
	// If maxTextSearches searches are running, a further search waits for maxSlotWait and is then
	// refused. The refusal has slotRetryAfter as its Retry-After.
	maxSlotWait    = 3 * time.Second
	slotRetryAfter = 5 * time.Second
)

// textSearchLimit allows maxTextSearches searches at a time. The zero value is ready to use.
type textSearchLimit struct {
	once  sync.Once
	slots *semaphore.Weighted
}

// acquireSlot waits for a slot. The caller must call done after its search. If no slot becomes free
// within maxSlotWait, or ctx ends, the error has the kind Unavailable.
func (t *textSearchLimit) acquireSlot(ctx context.Context) (done func(), err error) {
	t.once.Do(func() { t.slots = semaphore.NewWeighted(maxTextSearches) })
	limited, cancel := context.WithTimeout(ctx, maxSlotWait)
	defer cancel()

	if err := t.slots.Acquire(limited, 1); err != nil {
		return nil, &weir.Error{Kind: weir.Unavailable, Op: "search",
			Message:    "other searches for a text are under way; try again",
			RetryAfter: slotRetryAfter, Err: err}
	}

	return func() { t.slots.Release(1) }, nil
}
