// Package process is the function that answers a ticket: it looks at the ticket's lane, and starts the lane's
// drain if there is work. The drain itself is never part of an invocation.
//
// The host runs up to 16 + 8 tickets at a time (batchSize + newBatchThreshold of host.json). So the function answers
// a ticket as soon as it knows the state of the lane. While this process drains or claims lanes, one invocation stays
// in flight, because the host may end a process that has none. See stay.go.
package process

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"weir/internal/drain"
	"weir/internal/invoke"
	"weir/internal/lane"
	"weir/internal/ticket"
)

// ticketAhead is the time within which due work gets a ticket. Later work needs no ticket: the sweep reads the
// due time in tail and wakes the lane.
const ticketAhead = 2 * time.Minute

// Drainer starts the drains of lanes, and reports their states.
type Drainer interface {
	// Look returns as soon as this process knows the state of the lane.
	Look(ctx context.Context, lane int) drain.Report
	// Join returns when this process no longer drains the lane, or when ctx ends.
	Join(ctx context.Context, lane int) drain.Report
	// Claim claims a lane that another process holds. It returns Working as soon as this process drains the
	// lane, Busy when the claim ended without the lane, Waiting after a failure of storage, and Idle if the
	// lane is closed.
	Claim(ctx context.Context, lane int) drain.Report
	// Held returns the lanes that this process drains now, in order.
	Held() []int
}

// Holder is informed whether an invocation stays with the lanes of this process. The function calls Attend when an
// invocation begins to stay, and Yield when this invocation ends or is about to end. HandOver hands a lane over to
// other processes. The function calls StopTaking when the platform seems to be shutting the host down. This process
// then takes no lane for ten minutes, or until the host calls a queue or timer function again.
type Holder interface {
	Attend()
	Yield()
	HandOver(lane int)
	StopTaking()
}

// Tickets enqueues tickets, and knows which tickets are on their way; see ticket.Sender.
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

// Function answers tickets. All exported fields are required.
type Function struct {
	Drainer Drainer
	Holder  Holder
	Tickets Tickets
	Lanes   int           // number of lanes
	Lease   time.Duration // length of a lane's lease
	Now     func() time.Time
	Logger  *slog.Logger

	mu      sync.Mutex
	staying *stay // nil = no invocation stays with lanes
	// keptUnder is about holders that did not hand a lane over when this process last claimed it. For each such lane,
	// keptUnder has the fence of that holder.
	keptUnder map[int]int64
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler { return invoke.Handler("process", f.Logger, f.Process) }

// Process answers one ticket. If it returns an error, the host makes the ticket visible again.
func (f *Function) Process(ctx context.Context, in invoke.Invocation) error {
	text, err := in.Text("ticket")
	if err != nil {
		return err
	}
	_, number, err := ticket.Decode(text)
	if err != nil || number >= f.Lanes {
		f.Logger.Warn("process: not a ticket", "invocation_id", in.ID, "err", err)
		return nil // an error would make the host send the same text again
	}
	f.Tickets.MarkReceived(number)
	if number == ticket.AllLanes {
		return f.answerAll(ctx)
	}
	report := f.Drainer.Look(ctx, number)
	f.Logger.Debug("process: lane looked at", "invocation_id", in.ID, "lane", number, "stage", string(report.State))
	switch {
	case report.Err == nil && report.State == drain.Working:
		return f.stayWith(ctx, []followedLane{{lane: number, isDrained: true}})
	case report.Err == nil && isHeldElsewhere(report) && f.hasClaimed(number, report.HolderFence):
		return f.stayWith(ctx, nil)
	case report.Err == nil && isHeldElsewhere(report):
		return f.stayWith(ctx, []followedLane{{lane: number, holderFence: report.HolderFence}})
	}
	return errors.Join(f.enqueueTicket(ctx, number, report), f.stayWith(ctx, nil))
}

// isHeldElsewhere reports whether another process holds the lane. The caller then claims the lane, even if the
// lane has no work at this moment. Otherwise a holder without an invocation would keep a lane whose messages
// come one at a time.
func isHeldElsewhere(r drain.Report) bool { return r.State == drain.Busy || r.HolderFence != 0 }

// hasClaimed reports whether this process need not claim the lane again. That is so if the present holder kept the
// lane when this process last claimed it, and the ticket that this process requeued after that claim is not visible
// yet.
func (f *Function) hasClaimed(lane int, holderFence int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keptUnder[lane] == holderFence && f.Tickets.AwaitsRequeued(lane)
}

// answerAll answers a ticket for all lanes. If another process holds a lane, answerAll requeues the ticket. If a lane
// has work that is due within ticketAhead, answerAll also enqueues a ticket for all lanes that becomes visible at
// that due time.
func (f *Function) answerAll(ctx context.Context) error {
	reports := make([]drain.Report, f.Lanes)
	_ = lane.ForEach(f.Lanes, func(number int) error {
		reports[number] = f.Drainer.Look(ctx, number)
		return nil
	})
	var lanes []followedLane
	next := map[drain.State]drain.Report{} // for each state, the report with the earliest time Until
	for number, r := range reports {
		if r.Err != nil {
			return r.Err
		}
		if isHeldElsewhere(r) {
			r.State = drain.Busy // this process claims the lane, with or without work
		}
		if r.State == drain.Working || r.State == drain.Busy {
			lanes = append(lanes, followedLane{number, r.State == drain.Working, r.State == drain.Busy, r.HolderFence})
		}
		if known, ok := next[r.State]; !ok || r.Until.Before(known.Until) {
			next[r.State] = r
		}
	}
	err := errors.Join(f.enqueueTicket(ctx, ticket.AllLanes, next[drain.Waiting]),
		f.enqueueTicket(ctx, ticket.AllLanes, next[drain.Busy]))
	if err != nil {
		return err
	}
	return f.stayWith(ctx, lanes)
}

// enqueueTicket looks at the report on a lane, and enqueues a ticket for the lane in three cases: this process still
// drains the lane, another process holds it, or its work is due within ticketAhead. If the report has an error,
// enqueueTicket returns that error and enqueues no ticket.
func (f *Function) enqueueTicket(ctx context.Context, lane int, r drain.Report) error {
	switch {
	case r.Err != nil:
		return r.Err
	case r.State == drain.Working:
		return f.Tickets.Enqueue(ctx, lane)
	case r.State == drain.Busy:
		return f.Tickets.Requeue(ctx, lane, f.Lease)
	case r.State == drain.Waiting && r.Until.Sub(f.Now()) < ticketAhead:
		return f.Tickets.EnqueueAt(ctx, lane, r.Until)
	}
	return nil
}
