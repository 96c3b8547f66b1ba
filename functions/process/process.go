// Package process is the function that answers a ticket: it starts or joins the drain of
// the ticket's lane. The drain itself is never part of an invocation.
package process

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/drain"
	"weir/internal/invoke"
	"weir/internal/ticket"
)

const (
	// joinLimit is how long an invocation stays with a drain; a new ticket goes on.
	joinLimit = time.Minute
	// twoSweeps: what is due later needs no ticket, the sweep sees it in tail.
	twoSweeps = 2 * time.Minute
)

// Drainer drains lanes.
type Drainer interface {
	Join(ctx context.Context, lane int) drain.Report
}

// Bell puts tickets, under its merge rule.
type Bell interface {
	Seen(lane int)
	Ring(ctx context.Context, lane int) error
	RingAt(ctx context.Context, lane int, at time.Time) error
	PutBack(ctx context.Context, lane int, about time.Duration) error
}

// Function answers tickets. All fields are needed.
type Function struct {
	Drainer Drainer
	Bell    Bell
	Lanes   int
	Lease   time.Duration
	Now     func() time.Time
	Logger  *slog.Logger
}

// Handler is the function as the host calls it.
func (f *Function) Handler() http.Handler { return invoke.Handler("process", f.Logger, f.Process) }

// Process answers one ticket. An error gives the ticket back to the host.
func (f *Function) Process(ctx context.Context, in invoke.Invocation) error {
	text, err := in.Text("ticket")
	if err != nil {
		return err
	}
	_, lane, err := ticket.Decode(text)
	if err != nil || lane >= f.Lanes {
		f.Logger.Warn("process: not a ticket", "invocation_id", in.ID, "err", err)
		return nil // it will not become one by coming again
	}
	f.Bell.Seen(lane)
	joined, cancel := context.WithTimeout(ctx, joinLimit)
	defer cancel()
	report := f.Drainer.Join(joined, lane)
	f.Logger.Debug("process: lane looked at", "invocation_id", in.ID, "lane", lane, "stage", string(report.State))
	if report.Err != nil {
		return report.Err
	}
	return f.next(ctx, lane, report)
}

// next rings again where work is left that nobody else would come to.
func (f *Function) next(ctx context.Context, lane int, r drain.Report) error {
	switch r.State {
	case drain.Working:
		return f.Bell.Ring(ctx, lane)
	case drain.Busy:
		return f.Bell.PutBack(ctx, lane, f.Lease)
	case drain.Waiting:
		if r.Until.Sub(f.Now()) < twoSweeps {
			return f.Bell.RingAt(ctx, lane, r.Until)
		}
	}
	return nil
}
