package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/functions/sweep"
	"weir/internal/drain"
	"weir/internal/poll"
)

// Poll does the work of weir poll for one period, which began when the process started. The summary is nil if the work
// did not begin, because ctx ended before storage was open, or because storage could not be opened.
func (a *App) Poll(ctx context.Context, cfg poll.Config, startedAt time.Time) (*poll.Summary, error) {
	opening, cancel := context.WithDeadline(ctx, cfg.NotAfter(startedAt))
	defer cancel()
	store, err := a.awaitStore(opening, nil)
	if ctx.Err() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage could not be opened: %w", err)
	}
	meter := poll.NewMeter(a.newSender(), time.Now)
	r := newPollRunning(ctx, a, store, pipelineConfig{sender: meter, notAfter: cfg.NotAfter(startedAt)})
	a.running.Store(r)
	skipBlobSweep(r.cleaner, startedAt, cfg.Period)
	run := &poll.Run{Config: cfg, Start: startedAt, Lanes: a.settings.Lanes, Log: store,
		Drainer: pollDrainer{r.drainer, r.pipeline}, Sweeper: r.sweeper, Meter: meter, Now: time.Now, Logger: a.log}
	summary, err := run.Do(ctx)
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()
	return &summary, errors.Join(err, r.closeBackground(limited))
}

// pollDrainer is a drainer whose Close ends the whole pipeline.
type pollDrainer struct {
	*drain.Drainer
	pipeline *pipeline
}

// Close implements poll.Drainer. It ends the schedules first, because they append messages for the drainer.
func (d pollDrainer) Close(ctx context.Context) error {
	err := errors.Join(d.pipeline.schedules.Close(ctx), d.Drainer.Close(ctx))
	d.pipeline.tickets.Wait(ctx)
	return errors.Join(err, closeNotifier(ctx, d.pipeline.notifier))
}

// skipBlobSweep lets only the first process of each hour search for forgotten bodies. Each search begins with a read of
// the row that records the last search. Each period has a process of its own, and without skipBlobSweep each of them
// would read that row.
func skipBlobSweep(c *sweep.Cleaner, startedAt time.Time, period time.Duration) {
	if hour := startedAt.Truncate(time.Hour); !hour.After(startedAt.Add(-period)) {
		c.ForgottenAt = hour.Add(time.Hour)
	}
}
