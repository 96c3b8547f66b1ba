// Package process is the function that answers a ticket: it looks at the ticket's lane, and starts the lane's drain if
// there is work. The drain runs apart from the invocation.
//
// The host runs up to 16 + 8 tickets at a time (batchSize + newBatchThreshold of host.json). If each invocation waited
// for the end of a drain, other lanes' tickets would have to wait. So the function answers a ticket as soon as it knows
// the state of the lane.
//
// One invocation stays in flight while this process drains or claims lanes. Without an invocation, the host could end
// this process during a drain. See the timetable in stay.go.
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

// A lane gets a ticket only if its work is due within ticketAhead. For later work, the sweep wakes the lane.
const ticketAhead = 2 * time.Minute

// Drainer starts the drains of lanes, and reports their states.
type Drainer interface {
	// Look starts the lane's drain if the lane is free and has work that can be done now. Look returns when this
	// process knows the state of the lane.
	Look(ctx context.Context, lane int) drain.Report
	// Join waits until this process no longer drains the lane, or until ctx ends.
	Join(ctx context.Context, lane int) drain.Report
	// Claim claims a lane that another process holds, and waits for the result. The state is Working if this process
	// drains the lane now, and Busy if the claim failed. See Claim of drain.Drainer for the other states.
	Claim(ctx context.Context, lane int) drain.Report
	// Held returns the lanes that this process drains now, in ascending order.
	Held() []int
}

// Holder decides which lanes this process keeps, hands over and takes; see drain.Drainer.
//   - Attend records that an invocation begins to stay with the lanes of this process.
//   - Yield records that this invocation has ended, or ends soon.
//   - HandOver makes this process hand a lane over to other processes.
//   - StopTaking is called if the platform seems to be shutting the host down. This process then takes no further lane
//     until the host calls a queue or timer function, or until ten minutes have passed.
type Holder interface {
	Attend()
	Yield()
	HandOver(lane int)
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

// Function answers tickets. All exported fields are needed.
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
	// keptUnder has an entry for each lane for which a claim by this process has failed. The value is the holder's
	// fence at the last failed claim.
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
		return nil // after an error the host would send the same text again
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

// isHeldElsewhere reports whether another process seems to hold the lane. This process then claims the lane, even if
// the lane has no work at this moment. Otherwise a holder without an invocation would keep a lane whose messages come
// one at a time.
func isHeldElsewhere(r drain.Report) bool { return r.State == drain.Busy || r.HolderFence != 0 }

// hasClaimed reports whether another claim would only repeat the last one. Two conditions must be met: a claim by this
// process has failed under the present holder, and the ticket that was requeued after that claim is not visible yet.
func (f *Function) hasClaimed(lane int, holderFence int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keptUnder[lane] == holderFence && f.Tickets.AwaitsRequeued(lane)
}

// answerAll answers a ticket for all lanes. If another process holds a lane, answerAll requeues the ticket. If a lane's
// work is due within ticketAhead, answerAll also enqueues a ticket for all lanes. This ticket becomes visible at the
// earliest due time.
func (f *Function) answerAll(ctx context.Context) error {
	reports := make([]drain.Report, f.Lanes)
	_ = lane.ForEach(f.Lanes, func(number int) error {
		reports[number] = f.Drainer.Look(ctx, number)
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

// enqueueTicket enqueues a ticket for the lane in three cases:
//   - This process still drains the lane.
//   - Another process holds the lane.
//   - The lane's work is due within ticketAhead.
//
// If the report has an error, enqueueTicket only returns this error.
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
