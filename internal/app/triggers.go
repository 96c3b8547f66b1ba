package app

import (
	"context"
	"time"

	"weir/functions/poison"
	"weir/internal/invoke"
	"weir/internal/residence/stay"
	"weir/internal/trigger"
)

// folderPause is the longest pause between two looks at a queue of a folder. A look costs nothing,
// and other processes of this machine, such as weir consume, rely on it.
const folderPause = time.Second

// listTriggers returns the queues that a process without a Functions host polls, with the functions
// that they trigger.
func (r *running) listTriggers() []*trigger.Queue {
	answer := r.newProcess(stay.WithoutHost{Drainer: r.drainer})
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
				Call: func(ctx context.Context, in invoke.Invocation) error {
					return take.Take(ctx,
						in)
				}, Log: r.log},
		)
	}

	if r.settings.Data != "" {
		for _, q := range queues {
			q.MaxPause = folderPause
		}
	}

	return queues
}
