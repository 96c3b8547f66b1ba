package app

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"weir/internal/audit"
	"weir/internal/batch"
	"weir/internal/history"
	"weir/internal/inbox"
	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/overview"
	"weir/internal/panics"
	"weir/internal/redact"
	"weir/internal/replay"
	"weir/internal/residence"
	"weir/internal/sweeper"
	"weir/internal/upkeep"
	"weir/internal/upstream"
)

// running has the parts of a process that need storage. All parts are made together when storage is
// open.
type running struct {
	*App
	*pipeline
	upkeep   *upkeep.Keeper
	upkeepAt time.Time // before this time this process begins no job of upkeep; zero = no limit
	sweeper  *sweeper.Sweeper
	audit    *audit.Log
	proofs   *audit.Proofs
	inbox    *inbox.Collector // nil = this process takes no files from the inbox
	// nil = the settings name no upstreams, or the process runs the command weir poll
	upstreams *upstream.Set

	// The following fields are nil in a process that runs the command weir poll.
	batches  *batch.Runner
	history  *history.Keeper
	bodies   *redact.Bodies // reads bodies, and hides their redacted values
	overview *overview.Overview
	replays  *replay.Runner
	gauges   *laneGauges
	handler  http.Handler    // answers every address except /
	serving  context.Context // is canceled when the server begins to stop

	checkEpoch func() // makes a server check whether the epoch is over; returns at once
}

// newPollRunning makes the parts for the command weir poll, which answers no requests.
func newPollRunning(ctx context.Context, a *App, store *lane.Store, cfg pipelineConfig,
	upkeepAt time.Time) *running {
	r := &running{App: a, pipeline: newPipeline(ctx, a, store, cfg), checkEpoch: func() {},
		audit: a.newAuditLog(store.Table), upkeepAt: upkeepAt}
	r.upkeep = r.newUpkeep()
	r.sweeper = r.newSweeper(r.drainer)
	return r
}

func newServerRunning(ctx context.Context, a *App, store *lane.Store, permit *residence.Permit,
	checkEpoch func()) *running {
	r := &running{App: a, serving: ctx, checkEpoch: checkEpoch,
		pipeline: newPipeline(ctx, a, store, pipelineConfig{
			sender: a.newSender(), permit: permit, ticketsOnly: a.settings.DeliversByTicket()})}
	r.appender.OnSealed = checkEpoch
	r.upstreams = a.newUpstreams(store.Table)
	r.history = r.startHistory()
	r.bodies = &redact.Bodies{Loader: store.Messages(), Contracts: r.contracts}
	r.overview = &overview.Overview{Store: store, Rates: r.history, Calendar: a.calendar,
		Now: time.Now, Redactor: r.bodies}
	r.replays = r.newReplays()
	r.batches = r.newBatches()
	r.inbox = r.newInbox()
	r.audit = a.newAuditLog(store.Table)
	r.proofs = &audit.Proofs{Table: store.Table, Now: time.Now}
	r.upkeep = r.newUpkeep()
	r.sweeper = r.newSweeper(r.waker)
	r.gauges = r.newLaneGauges()
	table := r.listRoutes()
	if a.crashGuard != nil {
		for i := range table {
			table[i].handler = a.crashGuard.Handler(table[i].handler)
		}
	}

	if a.door != nil { // a request without the right key has no mark
		table = guardRoutes(a.door, table)
	}

	r.handler = newRouter(r.log, table)

	return r
}

func (r *running) newSweeper(waker sweeper.Waker) *sweeper.Sweeper {
	s := &sweeper.Sweeper{Log: r.store, Waker: waker, Upkeep: r.upkeep, Schedules: r.schedules,
		Observe: r.observeLane, Lanes: r.settings.Lanes, Now: time.Now}
	if r.inbox != nil {
		s.Inbox = r.inbox
	}

	if r.replays != nil {
		s.Resume = r.resumeJobs
	}

	return s
}

// observeLane records the state of a lane in the metrics and the history, and stores the lane's own
// events, such as lane.paused. If the lane is sealed, the number of lanes changes.
func (r *running) observeLane(ctx context.Context, number int, c lane.Control) {
	if c.Head.IsSealed {
		r.checkEpoch()
	}

	now := time.Now()
	oldest, err := lists.Reader{Store: r.store}.OldestWaitingSince(ctx, number, c)
	if err != nil {
		r.log.Warn("sweep: oldest not known", "lane", number, "err", err)
	}

	var age time.Duration
	if !oldest.IsZero() {
		age = max(0, now.Sub(oldest))
	}

	r.instruments.recorder.Waits(number, c.WaitingCount(), age)

	refused, refusedErr := (&overview.Overview{Store: r.store}).ReadRefusedKeys(ctx, number, c)
	if refusedErr != nil {
		r.log.Warn("sweep: refused keys not known", "lane", number, "err", refusedErr)
	}

	r.instruments.recordLane(number, c, oldest, now, refused)
	r.logPauseByCMS(number, c.Tail, refused, now)

	r.notifier.ObserveLane(number, c)
	if err == nil {
		r.notifier.ReportLane(ctx, number, c, oldest)
	}
}

// resumeJobs starts the bulk replays and batches whose process has ended. The control rows of lane
// 0 have the markers of the bulk replays, and one query finds the batches of all lanes.
func (r *running) resumeJobs(ctx context.Context, first lane.Control) {
	r.replays.ResumeOrphans(first)
	if err := r.batches.ResumeOrphans(ctx); err != nil {
		r.log.Warn("sweep: batches not looked at", "err", err)
	}
}

// logPauseByCMS logs that a lane is paused because the CMS is away, or refuses a few keys. A holder
// logs the beginning of a pause only, and a CMS can ask for a pause of an hour (Retry-After). An
// alert on log lines needs lines for as long as the pause lasts.
func (r *running) logPauseByCMS(number int, t lane.Tail, refused overview.RefusedKeys,
	now time.Time) {
	left := t.PausedUntil.Sub(now)
	switch {
	case left <= 0:
	case refused.AreFew():
		r.log.Warn("sweep: the cms refuses keys", "lane", number, "key", refused.First, "depth",
			refused.Count, "delay_ms", left.Milliseconds(), "err", t.PauseReason)
	default:
		r.log.Warn("sweep: lane is paused by the cms", "lane", number, "delay_ms",
			left.Milliseconds(), "err", t.PauseReason)
	}
}

// closeWork ends schedules and deliveries at the same time. Otherwise, if storage does not answer,
// the schedules could use up the time that the drainer needs to hand its lanes over.
func (r *running) closeWork(ctx context.Context) error {
	return closeTogether(ctx, r.schedules.Close, r.drainer.Close)
}

// closeBackground ends the work on batches, files, bulk replays and retention.
func (r *running) closeBackground(ctx context.Context) error {
	if r.replays == nil {
		return r.upkeep.Close(ctx)
	}

	closers := []func(context.Context) error{r.batches.Close, r.replays.Close, r.upkeep.Close}
	if r.inbox != nil {
		closers = append(closers, r.inbox.Close)
	}

	return closeTogether(ctx, closers...)
}

// closeRecords ends the sending of events, writes the last counters of the history, and returns
// unused reservations to the daily quotas. Then it waits until all tickets are enqueued.
func (r *running) closeRecords(ctx context.Context) error {
	err := errors.Join(r.notifier.Close(ctx), r.history.Close(ctx), r.upstreams.ReturnReserved(ctx))
	r.tickets.Wait(ctx)
	r.bell.close()
	return err
}

// closeTogether calls all closers at the same time, and returns all their errors.
func closeTogether(ctx context.Context, closers ...func(context.Context) error) error {
	errs := make([]error, len(closers))
	var all sync.WaitGroup
	for i, closer := range closers {
		all.Go(func() { errs[i] = panics.Catch(func() error { return closer(ctx) }) })
	}

	all.Wait()
	return errors.Join(errs...)
}
