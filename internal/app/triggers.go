package app

import (
	"context"
	"time"

	"weir/functions/poison"
	"weir/functions/process"
	"weir/internal/drain"
	"weir/internal/invoke"
	"weir/internal/trigger"
)

// folderPause is the longest pause between two looks at a queue of a folder. A look costs nothing,
// and other processes of this machine, such as weir consume, rely on it.
const folderPause = time.Second

// listTriggers returns the queues that a process without a Functions host polls, with the functions
// that they trigger.
func (r *running) listTriggers() []*trigger.Queue {
	answer := r.newProcess()
	answer.Drainer = attendedDrainer{r.drainer}
	poisoned := &poison.Function{
		Tickets:  r.tickets,
		Lanes:    r.settings.Lanes,
		Observer: r.instruments,
		Logger:   r.log,
	}
	queues := []*trigger.Queue{
		{
			Function: "process",
			Binding:  "ticket",
			Messages: r.account.Tickets(),
			Poison:   r.account.Poison(),
			Call:     answer.Process,
			Log:      r.log,
		},
		{
			Function: "poison",
			Binding:  "ticket",
			Messages: r.account.Poison(),
			Call:     poisoned.Take,
			Log:      r.log,
		},
	}
	if r.inbox != nil {
		take := r.newInboxFunction()
		queues = append(
			queues,
			&trigger.Queue{Function: "inbox", Binding: "event", Messages: r.account.InboxEvents(),
				Call: func(ctx context.Context, in invoke.Invocation) error { return take.Take(ctx, in) }, Log: r.log},
		)
	}
	if r.settings.Data != "" {
		for _, q := range queues {
			q.MaxPause = folderPause
		}
	}
	return queues
}

// attendedDrainer is the drainer of a process that needs no invocation, because no host ends it. An
// invocation never stays with its lanes, and enqueues no tickets for them: it only starts drains,
// and claims lanes whose holders have no invocation.
type attendedDrainer struct{ process.Drainer }

// Look implements process.Drainer.
func (d attendedDrainer) Look(ctx context.Context, lane int) drain.Report {
	report := d.Drainer.Look(ctx, lane)
	if report.Err == nil && report.State == drain.Working {
		report = drain.Report{State: drain.Idle}
	}
	return report
}

// Join implements process.Drainer. It does not wait.
func (d attendedDrainer) Join(context.Context, int) drain.Report {
	return drain.Report{State: drain.Idle}
}

// Held implements process.Drainer.
func (d attendedDrainer) Held() []int { return nil }
