package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/drain"
	"weir/internal/poll"
)

// Poll does the work of the command `weir poll` for one period, which began at startedAt. If ctx
// ends before storage is open, the summary and the error are nil. If storage cannot be opened, Poll
// returns an error without a summary.
func (a *App) Poll(ctx context.Context, cfg poll.Config,
	startedAt time.Time) (*poll.Summary, error) {
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
	r := newPollRunning(ctx, a, store,
		pipelineConfig{sender: meter, notAfter: cfg.NotAfter(startedAt)},
		firstUpkeep(startedAt, cfg.Period))
	a.running.Store(r)
	run := &poll.Run{Config: cfg, Start: startedAt, Lanes: a.settings.Lanes, Log: store,
		Drainer: pollDrainer{r.drainer, r.pipeline}, Sweeper: r.sweeper, Meter: meter,
		Now: time.Now, Logger: a.log}
	summary, err := run.Do(ctx)
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer stop()

	return &summary, errors.Join(err, r.closeBackground(limited))
}

// pollDrainer is a drainer whose Close closes the whole pipeline.
type pollDrainer struct {
	*drain.Drainer
	pipeline *pipeline
}

// Close implements poll.Drainer. It closes the schedules first, because schedules append messages
// for the drainer.
func (d pollDrainer) Close(ctx context.Context) error {
	err := errors.Join(d.pipeline.schedules.Close(ctx), d.Drainer.Close(ctx))
	d.pipeline.tickets.Wait(ctx)
	d.pipeline.bell.close()
	return errors.Join(err, closeNotifier(ctx, d.pipeline.notifier))
}

// firstUpkeep returns the time before which a process of `weir poll` begins no job of upkeep. Only
// the first process of each hour begins them: a scheduler starts a process for each period, and
// each job begins with a read of its row.
func firstUpkeep(startedAt time.Time, period time.Duration) time.Time {
	if hour := startedAt.Truncate(time.Hour); !hour.After(startedAt.Add(-period)) {
		return hour.Add(time.Hour)
	}
	return startedAt
}
