package drain

import (
	"context"
	"time"

	"weir/internal/lane"
	"weir/internal/limiter"
)

// slotQueue is the place of a session in the queue for slots (package limiter). The wait for a slot
// comes before the attempt, so that the message can still be paused, cancelled or superseded. Its
// zero value, without a Limiter, lets each attempt begin at once.
type slotQueue struct {
	place    *limiter.Place
	requests func(contract string) int
}

// newSlotQueue returns the place of a session. The limiter calls notify when the wait may have
// become shorter.
func (d *Drainer) newSlotQueue(notify func()) slotQueue {
	q := slotQueue{requests: d.Requests}
	if d.Limiter != nil {
		q.place = d.Limiter.NewPlace(notify)
	}

	return q
}

// untilReady asks for the slots of an attempt. It returns how long the session should wait before
// it begins the attempt.
func (q slotQueue) untilReady(e *lane.Entry) time.Duration {
	if q.place == nil {
		return 0
	}

	requests := 1
	if q.requests != nil {
		requests = q.requests(e.Message.Contract)
	}

	return q.place.Ask(requests)
}

// begin waits for the first slot, which is near. See limiter.Place.Begin.
func (q slotQueue) begin(ctx context.Context) (attempt context.Context, end func(), err error) {
	if q.place == nil {
		return ctx, func() {}, nil
	}

	return q.place.Begin(ctx)
}

// leaveQueue takes the session out of the queue, because it has no message to send.
func (q slotQueue) leaveQueue() {
	if q.place != nil {
		q.place.Leave()
	}
}
