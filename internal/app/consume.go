package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"weir/internal/filing"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/rabbitmq"
	"weir/internal/relane"
	"weir/internal/settings"
	"weir/internal/telemetry"
	"weir/internal/upstream"
	"weir/internal/weir"
)

// Consume takes messages from the queues of intake.rabbitmq and appends them to the lanes, until
// ctx ends. Consume logs each error that it returns. If the process must be started again, Consume
// returns a RestartError.
func Consume(ctx context.Context, p Process) error {
	setGCPercent(p.Env)
	limitMemory(p.Env, os.DirFS("/"))
	level := &slog.LevelVar{}
	local := newSeverityHandler(p.Stdout, p.Stderr, level)
	export := telemetry.Open(ctx, p.Env, telemetryBuild(), local)
	defer flushExport(ctx, export)
	log := slog.New(export.Log(local))
	a, err := New(p.Env, log)
	if err == nil && a.settings.Intake.RabbitMQ == nil {
		err = errors.New("weir.yaml has no intake.rabbitmq: the broker and the queues to consume")
	}

	if err == nil && a.settings.Data != "" {
		a.closeAccount()
		err = errors.New("weir serve takes the messages of its folder itself: leave out " +
			settings.DataVariable)
	}

	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("consume: wrong setting", "err", line)
		}
		return err
	}

	level.Set(slog.Level(a.settings.Log.Level))
	a.startExport(ctx, export)

	return logEnd(a.consumeQueues(ctx), log)
}

// consumeQueues returns nil when ctx ends. It returns an error if storage cannot be opened, if the
// number of lanes is changed, or if the table was removed.
func (a *App) consumeQueues(ctx context.Context) error {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	store, err := a.awaitStore(working, end)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storage could not be opened: %w", err)
	}

	work := a.newConsumeWork(ctx, store)
	epochChecks := make(chan struct{}, 1)
	go func() {
		err := panics.Catch(func() error { return relane.Watch(working, store, epochChecks) })
		if err != nil {
			end(err)
		}
	}()

	work.appender.OnSealed = func() {
		select {
		case epochChecks <- struct{}{}:
		default:
		}
	}

	upstreams := a.newUpstreams(store.Table)
	a.newConsumer(work.appender, work.wake, upstreams).Run(working)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := upstreams.ReturnReserved(limited); err != nil {
		a.log.Warn("consume: reserved quota not returned", "err", err)
	}

	if err := work.close(limited); err != nil {
		a.log.Warn("consume: lanes not handed over", "err", err)
	}

	if ctx.Err() != nil {
		return nil
	}

	return context.Cause(working)
}

// consumeWork has the parts of weir consume that store messages, and those that deliver them.
type consumeWork struct {
	appender *lane.Appender
	wake     func(lane int)
	close    func(context.Context) error
}

// newConsumeWork returns the parts of weir consume. Without intake.rabbitmq.deliver, a ticket wakes
// a process of the app: an idle app polls the queue of tickets rarely. With it, this process takes
// the lane at once, and the ticket is the safety net.
func (a *App) newConsumeWork(ctx context.Context, store *lane.Store) consumeWork {
	if !a.settings.Intake.RabbitMQ.Deliver {
		tickets := a.newTickets(store)
		appender := lane.NewAppender(store, a.log)
		appender.OnFiled, appender.OnWake = a.instruments.recordAppended, tickets.EnqueueAsync
		return consumeWork{appender, tickets.EnqueueAsync, func(ctx context.Context) error {
			tickets.Wait(ctx)
			return nil
		}}
	}

	p := newPipeline(context.WithoutCancel(ctx), a, store, pipelineConfig{sender: a.newSender()})
	wake := p.waker.Filed().Ring
	p.appender.OnWake = wake

	return consumeWork{p.appender, wake, pollDrainer{p.drainer, p}.Close}
}

func (a *App) newConsumer(appender filing.Appender, wake func(lane int),
	upstreams *upstream.Set) *rabbitmq.Consumer {
	s := a.settings.Intake.RabbitMQ
	tlsConfig, _ := s.TLS.NewConfig() // no error, because settings.Load has checked s.TLS
	return rabbitmq.New(rabbitmq.Config{URL: string(s.URL), TLS: tlsConfig,
		MaxBody: int64(a.settings.MaxBody), Name: "weir " + a.processName(),
		Queues: s.ConsumedQueues(), Prefetch: s.PrefetchOrDefault(),
		DeadLetterExchange: s.DeadLetterExchange,
		RequiresMessageID:  s.RequiresMessageID(),
		Filer:              a.newFiler(tracedAppender{appender, a.instruments.export}, upstreams),
		Wake:               wake, Observer: submissions{a.instruments, history.WayBroker},
		Now: time.Now, Log: a.log})
}

// tracedAppender makes a span of each append. The span continues the message's trace. If the
// message has no trace, the span begins a trace.
type tracedAppender struct {
	filing.Appender
	export *telemetry.Export
}

// Append implements filing.Appender.
func (t tracedAppender) Append(ctx context.Context, m weir.Message, idempotencyKey string) (
	filed lane.Receipt, err error) {
	err = t.export.File(ctx, &m, func(ctx context.Context) error {
		filed, err = t.Appender.Append(ctx, m, idempotencyKey)
		return err
	})
	return filed, err
}
