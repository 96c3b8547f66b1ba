package httpio

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/weir"
)

const (
	// turnsAtOnce is the number of turns at the same time. A turn keeps a core busy for up to a
	// second; an instance has one or two cores, which deliveries need, too.
	turnsAtOnce = 2
	// turnWait is the longest time for which a request waits for a turn, and turnRetry the
	// Retry-After if it gets none.
	turnWait, turnRetry = 5 * time.Second, 5 * time.Second
)

// Turns limits the requests of operators that need much memory and much of a core for one message,
// such as the comparison of two bodies. A Turns is safe for concurrent use.
type Turns struct {
	turns  *semaphore.Weighted
	memory *semaphore.Weighted
	size   int64 // of memory
}

// NewTurns returns a Turns with "size" bytes of memory for all turns together.
func NewTurns(size int64) *Turns {
	return &Turns{turns: semaphore.NewWeighted(turnsAtOnce), memory: semaphore.NewWeighted(size),
		size: size}
}

// Take waits for a turn, and for "size" bytes of memory. A turn that needs more memory than there
// is waits until it is the only one. The caller must call done at the end of the turn; done is
// never nil. If no turn or no memory becomes free in time, the error is Unavailable.
func (t *Turns) Take(ctx context.Context, size int64) (done func(), err error) {
	none := func() {}
	limited, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	if err := t.turns.Acquire(limited, 1); err != nil {
		return none, busyError(err)
	}

	size = min(size, t.size)
	if err := t.memory.Acquire(limited, size); err != nil {
		t.turns.Release(1)
		return none, busyError(err)
	}

	return func() {
		t.memory.Release(size)
		t.turns.Release(1)
	}, nil
}

func busyError(err error) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "turns", RetryAfter: turnRetry, Err: err,
		Message: "too many comparisons and previews are being made at the moment; try again"}
}
