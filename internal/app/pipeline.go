package app

import (
	"context"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/recur"
	"weir/internal/redact"
	"weir/internal/residence"
	"weir/internal/storage/embedded"
	"weir/internal/ticket"
	"weir/internal/wake"
	"weir/internal/weir"
)

// pipeline has the parts of this process through which a message passes:
//
//	functions/receive, schedules ──▶ appender ──▶ lane (storage)
//	                                    │ OnFiled: offers the stored messages, with their bodies
//	                                    ▼
//	                                 wake.Waker ─▶ drainer ──▶ CMS
//	                                    │
//	                                    └─ ticket ──▶ queue ──▶ drainer of another process
type pipeline struct {
	store     *lane.Store
	tickets   *ticket.Sender
	bell      *bell // rings the tickets of a folder
	notifier  *notify.Sender
	permit    *residence.Permit // nil = no Functions host runs this process
	drainer   *drain.Drainer
	waker     wake.Waker
	appender  *lane.Appender
	schedules *recur.Runner
}

// pipelineConfig has the settings that differ between the pipeline of a server and that of the
// command "weir poll".
type pipelineConfig struct {
	sender      drain.Sender
	notAfter    time.Time         // no attempt begins after notAfter; zero = no limit
	permit      *residence.Permit // nil = no Functions host runs this process
	ticketsOnly bool              // true = this process drains only the lanes that its tickets name
}

// newPipeline connects the parts of a pipeline, and starts the notifier.
func newPipeline(ctx context.Context, a *App, store *lane.Store, cfg pipelineConfig) *pipeline {
	queue, rings := a.ticketQueue(), &bell{log: a.log}
	if a.ownsFolder() {
		queue = rings
	}

	p := &pipeline{store: store, tickets: ticket.New(a.ticketConfig(store, queue)), bell: rings,
		notifier: a.startNotifier(ctx, store), permit: cfg.permit}
	drainCfg := a.drainConfig(store, p.tickets)
	drainCfg.Sender, drainCfg.NotAfter, drainCfg.Permit = cfg.sender, cfg.notAfter, cfg.permit
	p.drainer = drain.New(drainCfg)
	p.bell.connect(p.answerRing)
	p.waker = wake.Waker{Drainer: p.drainer, Tickets: p.tickets, TicketsOnly: cfg.ticketsOnly}
	p.appender = newAppender(a, store, p.waker)
	p.schedules = a.newSchedules(p)

	return p
}

// newAppender returns an appender that offers each stored message to the drainer, so that the
// drainer need not read the message from storage.
func newAppender(a *App, store *lane.Store, waker wake.Waker) *lane.Appender {
	appender := lane.NewAppender(store, a.log)
	appender.OnFiled = func(number int, messages []weir.Message) {
		waker.Offer(number, messages)
		a.instruments.recordAppended(number, messages)
	}

	appender.OnWake = waker.Filed().Ring
	return appender
}

func (a *App) newTickets(store *lane.Store) *ticket.Sender {
	return ticket.New(a.ticketConfig(store, a.ticketQueue()))
}

// ticketQueue returns the queue of tickets. If this process has the folder, and is no server, its
// tickets have no effect: no other process could receive them.
func (a *App) ticketQueue() ticket.Queue {
	if a.ownsFolder() {
		return &bell{log: a.log}
	}
	return a.account.Tickets()
}

// ownsFolder reports whether this process has the folder that stores everything.
func (a *App) ownsFolder() bool {
	f, isFolder := a.account.(folderAccount)
	return isFolder && f.Owner() == embedded.Owner{}
}

// answerRing wakes the lane of a ticket that rings in this process, or all lanes.
func (p *pipeline) answerRing(number int) {
	p.tickets.MarkReceived(number)
	first, last := number, number
	if number == ticket.AllLanes {
		first, last = 0, p.store.Lanes-1
	}

	for n := first; n <= last; n++ {
		p.drainer.Wake(n)
	}
}

// holderLingers is the shortest time for which a holder keeps the lease of an empty lane. A process
// that receives a ticket keeps the lane for at least this time, so the lane needs no other ticket
// meanwhile.
const holderLingers = 2 * time.Second

func (a *App) ticketConfig(store *lane.Store, queue ticket.Queue) ticket.Config {
	delay := a.settings.TicketDelay
	cfg := ticket.Config{Queue: queue, Epoch: store.Epoch, MinDelay: time.Duration(delay.Min),
		MaxDelay: time.Duration(delay.Max), NoDelay: delay.Max == 0, Now: time.Now, Log: a.log}
	if a.settings.DeliversByTicket() {
		cfg.NoDelay, cfg.CountsFor = true, holderLingers
	}
	return cfg
}

func (a *App) drainConfig(store *lane.Store, tickets drain.Tickets) drain.Config {
	s := &a.settings
	return drain.Config{
		Store: store, Leases: a.account.Leases(), Sender: a.newSender(), Tickets: tickets,
		Lease: time.Duration(s.Lease), Settle: s.SettleTime(), Attempts: s.Delivery.Attempts,
		Backoff: s.BackoffConfig(), Patience: time.Duration(s.Delivery.Patience),
		RetryFor: s.RetryFor(),
		Brake:    s.Delivery.Brake,
		Limiter:  a.limiter, Requests: a.sender.MostRequests,
		AtOnce: s.Delivery.MaxConcurrent, Now: time.Now,
		Log:      a.log,
		Observer: a.instruments, Name: a.processName(), Calendar: a.calendar,
		Remembers: a.sender.Remembers, Memory: a.budgets.lanes,
	}
}

// newSender returns the sender of messages to the CMS. The sender hides redacted values in the
// results of attempts. If traces are exported, the sender records the spans of each attempt.
func (a *App) newSender() drain.Sender {
	redacting := &redact.Sender{Next: a.sender, Contracts: a.contracts}
	return a.instruments.export.Sender(redacting, a.settings.Delivery.Method,
		a.settings.Delivery.URL)
}
