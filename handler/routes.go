package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"weir/functions/cancel"
	"weir/functions/health"
	"weir/functions/metrics"
	"weir/functions/move"
	"weir/functions/poison"
	"weir/functions/process"
	"weir/functions/receive"
	"weir/functions/status"
	"weir/functions/sweep"
	"weir/functions/view"
	"weir/internal/drain"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/ticket"
)

// routes makes the functions. HTTP triggers arrive under /api with their own method and
// path, the others as POST /<function>.
func (p *Program) routes(store *lane.Store, bell *ticket.Sender, drainer *drain.Drainer) (http.Handler, func(context.Context) error) {
	s := p.settings
	call := p.newCaller(drainer, bell)
	sweeper := p.sweeper(store, call)
	mux := &router{}
	wrap := func(function string, h http.Handler) http.Handler {
		return httpio.Middleware(function, p.log, time.Now, h)
	}
	add := func(function, pattern string, h http.Handler, methods ...string) {
		mux.Handle(pattern, wrap(function, httpio.AllowMethods(h, methods...)))
	}
	addTrigger := func(function string, h http.Handler) {
		add(function, "/"+function, httpio.HostCallsOnly(p.log, h), http.MethodPost)
	}
	appender := p.newAppender(store, call)
	appender.Sealed = p.lookAgain
	sweeper.Schedules = p.schedules(mux, store, appender, bell)
	op := p.newOperator(mux, store, call)
	mux.Handle("/api/messages", httpio.ByMethod(map[string]http.Handler{
		http.MethodGet: op.reading(&view.Messages{Source: op.overview, Lanes: s.Lanes, Logger: p.log}),
		http.MethodPost: wrap("receive", p.export.Receive("/api/messages", &receive.Function{
			Contracts: p.contracts, Callbacks: p.callbacks(), Log: appender, Drain: call, Tickets: bell, Waits: &receive.Waits{Finals: drainer, States: store, MaxHeld: p.memory.waits}, Observer: p.metrics,
			Intake: httpio.NewIntake(p.memory.intake, int64(s.MaxBody)), MaxBody: int64(s.MaxBody), Now: time.Now, Logger: p.log})),
	}))
	mux.Handle("/api/messages/{id}", httpio.ByMethod(map[string]http.Handler{
		http.MethodGet:    wrap("status", httpio.WithTimeout(readLimit, &status.Function{Log: store, Forecaster: op.overview, Logger: p.log})),
		http.MethodDelete: wrap("cancel", httpio.IgnoreDisconnect(&cancel.Function{Log: store, Caller: call, Logger: p.log})),
		http.MethodPatch:  wrap("move", httpio.IgnoreDisconnect(&move.Function{Log: store, Caller: call, Logger: p.log})),
	}))
	checks := health.New(p.checks(store), time.Now)
	add("health", "/api/health", checks, http.MethodGet, http.MethodHead)
	op.view("/api/checks", checks.Details())
	add("metrics", "/api/metrics", p.newLaneGauges(store).Before(metrics.New(p.metrics.Registry, p.log)), http.MethodGet)
	addTrigger("process", (&process.Function{
		Drainer: drainer, Holder: drainer, Tickets: bell, Lanes: s.Lanes, Lease: time.Duration(s.Lease), Now: time.Now, Logger: p.log}).Handler())
	addTrigger("poison", (&poison.Function{Tickets: bell, Lanes: s.Lanes, Logger: p.log}).Handler())
	addTrigger("sweep", sweeper.Handler())
	op.routes()
	mux.Handle("/", httpio.NotFound(p.log))
	return mux, sweeper.Sweep
}

// sealWatch looks, with each read of the control rows, whether the epoch may be over.
type sealWatch struct {
	*lane.Store
	sealed func()
	seen   func(ctx context.Context, number int, c lane.Control)
}

// Control implements sweep.Reader. It makes a lane that is missing: older versions wrote the
// lanes' record first, so a first start may have ended before it made the lanes.
func (s sealWatch) Control(ctx context.Context, number int) (lane.Control, error) {
	c, err := s.Store.Control(ctx, number)
	if storage.Is(err, storage.NotFound) {
		if err = s.Ensure(ctx, number); err == nil {
			c, err = s.Store.Control(ctx, number)
		}
	}
	if c.Head.Sealed {
		s.sealed()
	}
	if err == nil {
		s.seen(ctx, number, c)
	}
	return c, err
}

// sweeper is what the timer does, by whoever's clock.
func (p *Program) sweeper(store *lane.Store, waker sweep.Waker) *sweep.Function {
	s := p.settings
	return &sweep.Function{
		Log: sealWatch{store, p.lookAgain, func(ctx context.Context, number int, c lane.Control) { p.seen(ctx, store, number, c) }}, Waker: waker, Lanes: s.Lanes, Now: time.Now, Logger: p.log,
		Cleaner: p.newCleaner(store),
	}
}

// maxSkew is the difference of clocks from which the margin of leases is no longer enough
// to be easy about.
const maxSkew = 2 * time.Second

// checks are what health looks at.
func (p *Program) checks(store *lane.Store) map[string]health.Check {
	return map[string]health.Check{
		"storage": func(ctx context.Context) (string, error) {
			if _, err := store.Control(ctx, 0); err != nil {
				return "the table cannot be read", err
			}
			return "", nil
		},
		"lanes": func(ctx context.Context) (string, error) {
			meta, err := store.Meta(ctx)
			switch {
			case err != nil:
				return "the number of lanes cannot be read", err
			case meta.Open.Epoch != store.Epoch || meta.Step == lane.StepDrain || meta.Step == lane.StepRefile:
				p.lookAgain()
				return "the number of lanes is being changed", lane.ErrClosed
			}
			return "", nil
		},
		"queue": func(ctx context.Context) (string, error) {
			if _, err := p.account.Tickets().Length(ctx); err != nil {
				return "the queue cannot be read", err
			}
			return "", nil
		},
		"clock": func(ctx context.Context) (string, error) {
			skew, err := p.account.Skew(ctx)
			if err != nil {
				return "storage's clock cannot be read", err
			}
			if skew.Abs() >= maxSkew {
				return fmt.Sprintf("storage's clock differs by about %s", skew.Round(time.Second)), errors.New("clock skew")
			}
			return "", nil
		},
	}
}
