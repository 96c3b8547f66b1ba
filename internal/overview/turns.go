package overview

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// textsAtOnce bounds the searches for a text at a time: each opens megabytes of bodies.
	textsAtOnce = 2
	// textWait is how long the others wait for their turn before they are refused, and textRetry
	// the Retry-After of that answer.
	textWait  = 3 * time.Second
	textRetry = 5 * time.Second
)

// turns lets textsAtOnce searches run at a time. The zero value is ready.
type turns struct {
	once sync.Once
	room *semaphore.Weighted
}

// take waits for a turn; the caller calls done at its end. The error is Unavailable if no turn
// came in time.
func (t *turns) take(ctx context.Context) (done func(), err error) {
	t.once.Do(func() { t.room = semaphore.NewWeighted(textsAtOnce) })
	limited, cancel := context.WithTimeout(ctx, textWait)
	defer cancel()
	if err := t.room.Acquire(limited, 1); err != nil {
		return nil, &weir.Error{Kind: weir.Unavailable, Op: "search",
			Message: "other searches for a text are under way; try again", RetryAfter: textRetry, Err: err}
	}
	return func() { t.room.Release(1) }, nil
}
