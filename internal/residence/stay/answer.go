// Package stay answers tickets: it looks at a ticket's lane, and starts the lane's drain if there
// is work. The drain runs apart from the invocation.
//
// The host runs up to 16 + 8 tickets at a time (batchSize + newBatchThreshold of host.json). If
// each invocation waited for the end of a drain, other lanes' tickets would have to wait. So a
// ticket is answered as soon as this process knows the state of the lane.
//
// One invocation stays in flight while this process drains or claims lanes. Without an invocation,
// the host could end this process during a drain. See the timetable in stay.go.
package stay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/ticket"
)

// A lane gets a ticket only if its work is due within ticketAhead. For later work, the sweep wakes
// the lane.
const ticketAhead = 2 * time.Minute

// Drainer starts the drains of lanes, and reports their states.
type Drainer interface {
	// Look starts the lane's drain if the lane is free and has work that can be done now. Look
	// returns when this process knows the state of the lane.
	Look(ctx context.Context, lane int) drain.Report
	// Join waits until this process no longer drains the lane, or until ctx ends.
	Join(ctx context.Context, lane int) drain.Report
	// Claim claims a lane that another process holds, and waits for the result. The state is
	// Working if this process drains the lane now, and Busy if the claim failed. See Claim of
	// drain.Drainer for the other states.
	Claim(ctx context.Context, lane int) drain.Report
	// Held returns the lanes that this process drains now, in ascending order.
	Held() []int
	// HandOver makes this process hand a lane over to other processes.
	HandOver(lane int)
}

// Permit decides whether this process keeps its lanes and takes further ones; see residence.Permit.
type Permit interface {
	Attend()
	Yield()
	StopTaking()
}

// Tickets enqueues tickets, and knows which tickets will become visible; see ticket.Sender.
type Tickets interface {
	Enqueuer
	MarkReceived(lane int)
	Requeue(ctx context.Context, lane int, about time.Duration) error
	AwaitsRequeued(lane int) bool
}

// Enqueuer enqueues tickets for a lane; see ticket.Sender.
type Enqueuer interface {
	Enqueue(ctx context.Context, lane int) error
	EnqueueAt(ctx context.Context, lane int, at time.Time) error
	EnqueueNow(ctx context.Context, lane int) error
	EnqueueRelief(ctx context.Context, lane int) error
}

// Answerer answers the tickets of this process. All exported fields are needed.
type Answerer struct {
	Drainer Drainer
	Permit  Permit
	Tickets Tickets
	Lanes   int           // number of lanes
	Lease   time.Duration // length of a lane's lease
	Now     func() time.Time
	Logger  *slog.Logger

	mu      sync.Mutex
	staying *stay // nil = no invocation stays with lanes
	// keptUnder has an entry for each lane for which a claim by this process has failed. The value
	// is the holder's fence at the last failed claim.
	keptUnder map[int]int64
}

// Answer answers a ticket for a lane, or for ticket.AllLanes. If it returns an error, the host
// makes the ticket visible again.
func (a *Answerer) Answer(ctx context.Context, number int) error {
	a.Tickets.MarkReceived(number)
	if number == ticket.AllLanes {
		return a.answerAll(ctx)
	}

	report := a.Drainer.Look(ctx, number)
	a.Logger.Debug("process: lane looked at", "lane", number, "stage", string(report.State))

	switch {
	case report.Err == nil && report.State == drain.Working:
		return a.stayWith(ctx, []followedLane{{lane: number, isDrained: true}})
	case report.Err == nil && isHeldElsewhere(report) && a.hasClaimed(number, report.HolderFence):
		return a.stayWith(ctx, nil)
	case report.Err == nil && isHeldElsewhere(report):
		return a.stayWith(ctx, []followedLane{{lane: number, holderFence: report.HolderFence}})
	}

	return errors.Join(a.enqueueTicket(ctx, number, report), a.stayWith(ctx, nil))
}

// isHeldElsewhere reports whether another process seems to hold the lane. This process then claims
// the lane, even if the lane has no work at this moment. Otherwise a holder without an invocation
// would keep a lane whose messages come one at a time.
func isHeldElsewhere(r drain.Report) bool { return r.State == drain.Busy || r.HolderFence != 0 }

// hasClaimed reports whether another claim would only repeat the last one. Two conditions must be
// met: a claim by this process has failed under the present holder, and the ticket that was
// requeued after that claim is not visible yet.
func (a *Answerer) hasClaimed(lane int, holderFence int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keptUnder[lane] == holderFence && a.Tickets.AwaitsRequeued(lane)
}

// answerAll answers a ticket for all lanes. If another process holds a lane, answerAll requeues the
// ticket. If a lane's work is due within ticketAhead, answerAll also enqueues a ticket for all
// lanes. This ticket becomes visible at the earliest due time.
func (a *Answerer) answerAll(ctx context.Context) error {
	reports := make([]drain.Report, a.Lanes)
	_ = lane.ForEach(a.Lanes, func(number int) error {
		reports[number] = a.Drainer.Look(ctx, number)
		return nil
	})

	var lanes []followedLane
	next := map[drain.State]drain.Report{} // by state: the report with the earliest time Until
	for number, r := range reports {
		if r.Err != nil {
			return r.Err
		}

		if isHeldElsewhere(r) {
			r.State = drain.Busy // this process claims the lane, with or without work
		}

		if r.State == drain.Working || r.State == drain.Busy {
			lanes = append(lanes,
				followedLane{number, r.State == drain.Working, r.State == drain.Busy,
					r.HolderFence})
		}

		if known, ok := next[r.State]; !ok || r.Until.Before(known.Until) {
			next[r.State] = r
		}
	}

	err := errors.Join(a.enqueueTicket(ctx, ticket.AllLanes, next[drain.Waiting]),
		a.enqueueTicket(ctx, ticket.AllLanes, next[drain.Busy]))
	if err != nil {
		return err
	}

	return a.stayWith(ctx, lanes)
}

// enqueueTicket enqueues a ticket for the lane in three cases:
//   - This process still drains the lane.
//   - Another process holds the lane.
//   - The lane's work is due within ticketAhead.
//
// If the report has an error, enqueueTicket only returns this error.
func (a *Answerer) enqueueTicket(ctx context.Context, lane int, r drain.Report) error {
	switch {
	case r.Err != nil:
		return r.Err
	case r.State == drain.Working:
		return a.Tickets.Enqueue(ctx, lane)
	case r.State == drain.Busy:
		return a.Tickets.Requeue(ctx, lane, a.Lease)
	case r.State == drain.Waiting && r.Until.Sub(a.Now()) < ticketAhead:
		return a.Tickets.EnqueueAt(ctx, lane, r.Until)
	}

	return nil
}
