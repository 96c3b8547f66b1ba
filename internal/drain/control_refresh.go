package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// controlInterval is the time between two reads of the control rows while the holder has work. The rows show
	// requests, pauses, claims, and whether other instances have appended messages.
	controlInterval = time.Second
	// controlRetry is the pause of await after a failed read.
	controlRetry = 200 * time.Millisecond
)

// controlRefresh reads the control rows while messages are sent. A failed read does no harm: another read follows soon,
// and a commit fails if the lane has another holder.
type controlRefresh struct {
	laneScope
	waiter     *waiter
	answer     chan lane.Control // gets the rows of the read under way; nil = no read is under way
	askedAt    time.Time         // when the last read began
	lastSeenAt time.Time         // when a read last began, or control rows were last applied, whichever is later
}

// pollControl returns the result of the read under way, but does not wait for it. hasEnded reports whether the read has
// ended. isRead reports whether it succeeded, so that c has its rows. If no read is under way, pollControl returns
// nothing; it then begins a read if lastSeenAt is at least minAge ago.
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

// await waits for a read of the control rows. If the read fails, await then waits for controlRetry. isRead is false if
// the read failed or the session ends.
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
		defer panics.Log(r.log, "drain: read of the control rows")
		if c, err := r.store.ReadControl(ctx, r.lane); err == nil {
			answer <- c
		}
	}()
}
