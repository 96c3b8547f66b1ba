package app

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"weir/functions/sweep"
	"weir/internal/audit"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/replay"
	"weir/internal/storage"
)

// running has the parts of a process that need storage. They are made together when storage is open, so
// either all of them exist or none.
type running struct {
	*App
	*pipeline
	cleaner  *sweep.Cleaner
	sweeper  *sweep.Function
	audit    *audit.Log
	history  *history.Keeper    // these four are nil under handler poll
	overview *overview.Overview //
	replays  *replay.Runner     //
	handler  http.Handler       // answers every address

	checkEpoch func() // asks whether the epoch is over; returns at once
}

// newPollRunning makes the parts of handler poll: it answers no requests.
func newPollRunning(ctx context.Context, a *App, store *lane.Store, cfg pipelineConfig) *running {
	r := &running{App: a, pipeline: newPipeline(ctx, a, store, cfg), checkEpoch: func() {},
		audit: a.newAuditLog(store.Table)}
	r.cleaner = r.newCleaner()
	r.sweeper = r.newSweeper(r.drainer)
	return r
}

// newServerRunning makes the parts of a server.
func newServerRunning(ctx context.Context, a *App, store *lane.Store, isHosted bool, checkEpoch func()) *running {
	r := &running{App: a, checkEpoch: checkEpoch, pipeline: newPipeline(ctx, a, store, pipelineConfig{
		sender: a.newSender(), isHosted: isHosted, ticketsOnly: a.settings.deliversByTicket()})}
	r.appender.OnSealed = checkEpoch
	r.history = r.startHistory()
	r.overview = &overview.Overview{Store: store, Rates: r.history, Calendar: a.calendar, Now: time.Now}
	r.replays = r.newReplays()
	r.audit = a.newAuditLog(store.Table)
	r.cleaner = r.newCleaner()
	r.sweeper = r.newSweeper(r.waker)
	r.handler = newRouter(r.log, r.routes())
	return r
}

// newSweeper returns the sweep. A timer of the host calls it each minute; handler poll calls it itself.
func (r *running) newSweeper(waker sweep.Waker) *sweep.Function {
	return &sweep.Function{Log: sweepReader{r.store, r}, Waker: waker, Cleaner: r.cleaner, Schedules: r.schedules,
		Lanes: r.settings.Lanes, Now: time.Now, Logger: r.log}
}

// sweepReader reads control rows for the sweep, and passes them to the gauges, the history, the
// replays and the notifier.
type sweepReader struct {
	*lane.Store
	running *running
}

// ReadControl implements sweep.Reader. It creates a missing lane, because older versions wrote the number of
// lanes first: their first start may have ended before it created the lanes.
func (s sweepReader) ReadControl(ctx context.Context, number int) (lane.Control, error) {
	c, err := s.Store.ReadControl(ctx, number)
	if storage.Is(err, storage.NotFound) {
		if err = s.EnsureControlRows(ctx, number); err == nil {
			c, err = s.Store.ReadControl(ctx, number)
		}
	}
	if c.Head.IsSealed {
		s.running.checkEpoch()
	}
	if err == nil {
		s.running.observeLane(ctx, number, c)
	}
	return c, err
}

// observeLane takes the state of a lane into the metrics and the history, resumes bulk replays that lost
// their process, and reports the lane to the receivers of events.
func (r *running) observeLane(ctx context.Context, number int, c lane.Control) {
	now := time.Now()
	oldest, err := r.store.OldestWaitingSince(ctx, number, c)
	if err != nil {
		r.log.Warn("sweep: oldest not known", "lane", number, "err", err)
	}
	var age time.Duration
	if !oldest.IsZero() {
		age = max(0, now.Sub(oldest))
	}
	r.instruments.recorder.Waits(number, c.WaitingCount(), age)
	r.instruments.recordLane(number, c, oldest, now)
	if r.replays != nil {
		r.replays.ResumeOrphans(c)
	}
	r.notifier.ObserveLane(number, c)
	if err == nil {
		r.notifier.ReportLane(ctx, number, c, oldest)
	}
}

// closeWork ends appends and deliveries. The schedules and the drainer close at the same time: if storage is
// away, the schedules must not take the time that the drainer needs to hand its lanes over.
func (r *running) closeWork(ctx context.Context) error {
	return closeTogether(ctx, r.schedules.Close, r.drainer.Close)
}

// closeBackground ends bulk replays and retention.
func (r *running) closeBackground(ctx context.Context) error {
	if r.replays == nil {
		return r.cleaner.Close(ctx)
	}
	return closeTogether(ctx, r.replays.Close, r.cleaner.Close)
}

// closeRecords sends the events, counters and tickets that are left.
func (r *running) closeRecords(ctx context.Context) error {
	err := errors.Join(r.notifier.Close(ctx), r.history.Close(ctx))
	r.tickets.Wait(ctx)
	return err
}

// closeTogether calls all closers at the same time, and returns all their errors.
func closeTogether(ctx context.Context, closers ...func(context.Context) error) error {
	errs := make([]error, len(closers))
	var all sync.WaitGroup
	for i, closer := range closers {
		all.Go(func() { errs[i] = closer(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
