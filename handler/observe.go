package main

import (
	"context"
	"sync/atomic"
	"time"

	"weir/functions/sweep"
	"weir/internal/drain"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/weir"
)

// observers are several that are told the same.
type observers []drain.Observer

// Attempted implements drain.Observer.
func (all observers) Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome) {
	for _, o := range all {
		o.Attempted(lane, m, r, outcome)
	}
}

// Finished implements drain.Observer.
func (all observers) Finished(lane int, f drain.Final) {
	for _, o := range all {
		o.Finished(lane, f)
	}
}

// Lease implements drain.Observer.
func (all observers) Lease(lane int, event drain.LeaseEvent) {
	for _, o := range all {
		o.Lease(lane, event)
	}
}

// observer is who looks on while this process works.
func (p *Program) observer() drain.Observer { return observers{p.recorder, p.metrics} }

// keepHistory begins to write what the recorder counts.
func (p *Program) keepHistory(store *lane.Store) *history.Keeper {
	k := history.NewKeeper(history.Config{Table: store.Table, Recorder: p.recorder, Between: time.Duration(p.settings.Delivery.Rate), Now: time.Now, Log: p.log})
	p.keeper.Store(k)
	return k
}

// removal is retention, and the history's clearing up with it.
type removal struct {
	*lane.Retention
	keeper *atomic.Pointer[history.Keeper]
}

// Forgotten implements sweep.Retention.
func (r removal) Forgotten(ctx context.Context) (time.Time, error) {
	if k := r.keeper.Load(); k != nil {
		k.RequestCleanup()
	}
	return r.Retention.Forgotten(ctx)
}

// seen takes in what a sweep read of a lane.
func (p *Program) seen(ctx context.Context, store *lane.Store, number int, c lane.Control) {
	now := time.Now()
	oldest, err := store.Oldest(ctx, number, c)
	if err != nil {
		p.log.Warn("sweep: oldest not known", "lane", number, "err", err)
	}
	var age time.Duration
	if !oldest.IsZero() {
		age = max(0, now.Sub(oldest))
	}
	p.recorder.Waits(number, c.Waiting(), age)
	p.show(number, c, oldest, now)
	if r := p.replays.Load(); r != nil {
		r.ResumeOrphans(c)
	}
	if s := p.notifier.Load(); s != nil {
		s.ObserveLane(number, c)
		if err == nil {
			s.ReportLane(ctx, number, c, oldest)
		}
	}
}

// filed takes in what was filed.
func (p *Program) filed(number int, messages []weir.Message) {
	p.recorder.Accepted(number, len(messages))
	p.metrics.Filed(messages)
}

// retentionShare is the time that retention spends on a lane before it goes on with another one.
const retentionShare = 5 * time.Second

// newCleaner makes the cleaner, which removes old messages and bodies in the background.
func (p *Program) newCleaner(store *lane.Store) *sweep.Cleaner {
	s := p.settings
	c := &sweep.Cleaner{Lanes: s.Lanes, Now: time.Now, Logger: p.log, Retention: removal{&lane.Retention{
		Store: store, Keep: time.Duration(s.Retention), Dead: time.Duration(s.DeadRetention), Share: retentionShare,
		Log: p.log, Count: p.metrics.Removed}, &p.keeper}}
	p.cleaner.Store(c)
	return c
}
