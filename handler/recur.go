package main

import (
	"net/http"
	"time"
	_ "time/tzdata" // the platform's own time tables may be missing

	"weir/functions/schedules"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/ticket"
)

// newRunner makes what runs recurring messages.
func (p *Program) newRunner(store *lane.Store, appender *lane.Appender, bell *ticket.Bell) *recur.Runner {
	runner := recur.New(recur.Config{
		Store:     &recur.Store{Table: store.Table, Bodies: store.Bodies, Now: time.Now},
		Log:       recurLog{appender, store},
		Contracts: p.contracts, Bell: bell, Now: time.Now, Logger: p.log,
	})
	p.runner.Store(runner)
	return runner
}

// addSchedules makes the routes of recurring messages.
func (p *Program) addSchedules(mux *http.ServeMux, store *lane.Store, runner *recur.Runner) {
	function := &schedules.Function{Schedules: runner, Stored: store, MaxBody: int64(p.settings.MaxBody), Logger: p.log}
	for path, h := range function.Routes() {
		mux.Handle("/api/schedules"+path, httpio.Wrap("schedules", p.log, time.Now, h))
	}
}

// recurLog is the log as recurring messages need it.
type recurLog struct {
	*lane.Appender
	*lane.Store
}
