package drain

import (
	"context"
	"time"

	"weir/internal/lane"
)

const (
	// controlInterval is the time between two reads of the control rows while the holder has work: for requests,
	// pauses, claims, and messages that other instances have filed.
	controlInterval = time.Second
	// controlRetry is the time for which await waits after a failed read.
	controlRetry = 200 * time.Millisecond
)

// controlRefresh reads the control rows concurrently with deliveries. A failed read is harmless: another read follows
// within a second or so, and a commit fails if the lane has another holder.
type controlRefresh struct {
	laneScope
	waiter     *waiter
	answer     chan lane.Control // gets the rows of the read under way; nil = no read is under way
	askedAt    time.Time         // when that read began
	lastSeenAt time.Time         // when a read last began, or control rows were last applied
}

// pollControl returns the control rows of a read that has ended. hasEnded is false if no read has ended, and isRead is
// false if the read failed. If no read is under way, pollControl begins one, but not before minAge has passed since
// lastSeenAt.
func (r *controlRefresh) pollControl(ctx context.Context, minAge time.Duration) (c lane.Control, isRead,
	hasEnded bool) {
	if r.answer == nil {
		if r.now().Sub(r.lastSeenAt) >= minAge {
			r.startRead(ctx)
		}
		return lane.Control{}, false, false
	}
	select {
	case c, isRead = <-r.answer:
		r.answer = nil
		return c, isRead, true
	default:
		return lane.Control{}, false, false
	}
}

// await waits for a read of the control rows, and after a failed read for controlRetry, too. isRead is false if the
// read failed or the session ends.
func (r *controlRefresh) await(ctx context.Context) (c lane.Control, isRead bool) {
	if r.answer == nil {
		r.startRead(ctx)
	}
	select {
	case c, isRead = <-r.answer:
		r.answer = nil
		if !isRead {
			r.waiter.sleepThroughNews(ctx, controlRetry)
		}
	case <-r.waiter.open.Done():
	case <-ctx.Done():
	}
	return c, isRead
}

func (r *controlRefresh) startRead(ctx context.Context) {
	now := r.now()
	answer := make(chan lane.Control, 1)
	r.answer, r.askedAt, r.lastSeenAt = answer, now, now
	go func() {
		defer r.waiter.notify()
		defer close(answer)
		if c, err := r.store.ReadControl(ctx, r.lane); err == nil {
			answer <- c
		}
	}()
}
