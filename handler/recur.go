package main

import (
	"context"
	"net/http"
	"time"
	_ "time/tzdata" // the platform's own time tables may be missing

	"weir/functions/schedules"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/telemetry"
	"weir/internal/ticket"
	"weir/internal/weir"
)

// schedules makes what runs recurring messages, and their function's routes.
func (p *Program) schedules(mux *router, store *lane.Store, appender *lane.Appender, bell *ticket.Sender) *recur.Runner {
	runner := p.newRunner(store, appender, bell)
	p.runner.Store(runner)
	function := &schedules.Function{Schedules: runner, Stored: store, MaxBody: int64(p.settings.MaxBody), Logger: p.log}
	for path, h := range function.Routes() {
		mux.Handle("/api/schedules"+path, httpio.Middleware("schedules", p.log, time.Now, readsWithin(h)))
	}
	return runner
}

// readsWithin bounds how long a GET may take; what changes something comes to its end.
func readsWithin(h http.Handler) http.Handler {
	within, changing := httpio.WithTimeout(readLimit, h), httpio.IgnoreDisconnect(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			within.ServeHTTP(w, r)
			return
		}
		changing.ServeHTTP(w, r)
	})
}

func (p *Program) newRunner(store *lane.Store, appender *lane.Appender, bell *ticket.Sender) *recur.Runner {
	return recur.New(recur.Config{
		Store:     &recur.Store{Table: store.Table, Bodies: store.Bodies, Now: time.Now},
		Log:       recurLog{appender, store, p.export},
		Contracts: p.contracts, Tickets: bell, Now: time.Now, Logger: p.log,
	})
}

// recurLog is the log as recurring messages need it.
type recurLog struct {
	*lane.Appender
	*lane.Store
	export *telemetry.Export
}

// Append implements recur.Log.
func (l recurLog) Append(ctx context.Context, m weir.Message, idempotencyKey string) (filed lane.Receipt, err error) {
	err = l.export.File(ctx, &m, func(ctx context.Context) error {
		filed, err = l.Appender.Append(ctx, m, idempotencyKey)
		return err
	})
	return filed, err
}
