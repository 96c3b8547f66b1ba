package app

import (
	"log/slog"
	"net/http"
	"slices"
	"time"

	"weir/functions/cancel"
	"weir/functions/health"
	"weir/functions/metrics"
	"weir/functions/move"
	"weir/functions/poison"
	"weir/functions/process"
	"weir/functions/receive"
	"weir/functions/schedules"
	"weir/functions/status"
	"weir/functions/view"
	"weir/functions/write"
	"weir/internal/dashboard"
	"weir/internal/httpio"
	"weir/internal/openapi"
)

// route is a row of the table of routes: requests with the method and the path go to the handler.
type route struct {
	methods  []string // nil = the handler checks the method itself
	path     string
	function string // the folder below functions/, for the log
	handler  http.Handler
}

// The methods of routes.
var (
	get       = []string{http.MethodGet}
	getOrHead = []string{http.MethodGet, http.MethodHead}
	post      = []string{http.MethodPost}
	patch     = []string{http.MethodPatch}
	remove    = []string{http.MethodDelete}
)

// routes returns the table of all addresses that the process answers. HTTP triggers arrive under /api with
// their own method and path, the other triggers as POST /<function>. Each change of the page is a route of
// the function write, so that one key is enough for it; so a message can be cancelled by two routes.
func (r *running) routes() []route {
	s, log, now, store, waker := &r.settings, r.log, time.Now, r.store, r.waker
	maxBody, lanes := int64(s.MaxBody), s.Lanes
	pages := readOnly(r.newPages())
	cancelOne := toTheEnd(&cancel.Function{Log: store, Caller: waker, Logger: log})
	jobs := readOnly(&view.Replays{Jobs: r.replays, Logger: log})
	poisoned := &poison.Function{Tickets: r.tickets, Lanes: lanes, Logger: log}
	checks := health.New(r.healthChecks(), now)
	table := []route{
		{post, "/api/messages", "receive", r.newReceiver()},
		{get, "/api/messages", "view", readOnly(&view.Messages{Source: r.overview, Lanes: lanes, Logger: log})},
		{get, "/api/messages/{id}", "status", readOnly(&status.Function{Log: store,
			Forecaster: r.overview, Logger: log})},
		{remove, "/api/messages/{id}", "cancel", cancelOne},
		{patch, "/api/messages/{id}", "move", toTheEnd(&move.Function{Log: store, Caller: waker, Logger: log})},
		{get, "/api/messages/{id}/body", "view", readOnly(&view.Body{Bodies: store, Logger: log})},
		{get, "/api/messages/{id}/attempts", "view", readOnly(&view.Attempts{Source: store, Logger: log})},
		{get, "/api/messages/{id}/difference", "view", readOnly(&view.Difference{Bodies: store, Logger: log})},
		{post, "/api/messages/{id}/cancel", "write", cancelOne},
		{post, "/api/messages/{id}/replay", "write", toTheEnd(&write.Replay{Log: store, Caller: waker, Logger: log})},
		{post, "/api/messages/{id}/edit", "write", toTheEnd(&write.Edit{Contracts: r.contracts, Log: store,
			Caller: waker, MaxBody: maxBody, Logger: log})},
		{post, "/api/cancellations", "write", toTheEnd(&write.Cancellations{Log: store, Caller: waker, Lanes: lanes,
			Now: now, Logger: log})},

		{get, "/api/lanes", "view", readOnly(&view.Lanes{Source: r.overview, Calendar: r.calendar,
			Now: now, Logger: log})},
		{get, "/api/lanes/{lane}", "view", readOnly(&view.Lane{Source: r.overview, Logger: log})},
		{get, "/api/history", "view", readOnly(&view.History{Source: r.history, Lanes: lanes, Logger: log})},
		{get, "/api/errors", "view", readOnly(&view.Errors{Source: r.overview, Logger: log})},
		{get, "/api/audit", "view", readOnly(&view.Audit{Reader: r.audit, Logger: log})},
		{get, "/api/pauses", "view", readOnly(&view.Pauses{Reader: store, Calendar: r.calendar,
			Now: now, Logger: log})},
		{post, "/api/pause", "write", toTheEnd(&write.Pause{Pauser: store, Lanes: lanes, Now: now, Logger: log})},
		{post, "/api/resume", "write", toTheEnd(&write.Resume{Pauser: store, Caller: waker, Lanes: lanes,
			Logger: log})},
		{get, "/api/replays", "view", jobs},
		{post, "/api/replays", "write", toTheEnd(&write.Replays{Jobs: r.replays, Logger: log})},
		{get, "/api/replays/{id}", "view", jobs},
		{remove, "/api/replays/{id}", "write", toTheEnd(&write.CancelReplays{Jobs: r.replays, Logger: log})},
		{get, dashboard.Base, "view", pages},
		{get, dashboard.Base + "/{rest...}", "view", pages},
		{get, "/api/openapi.yaml", "view", readOnly(openapi.Handler())},
		{getOrHead, "/api/health", "health", checks},
		{get, "/api/checks", "view", readOnly(checks.Details())},
		{get, "/api/metrics", "metrics", r.newLaneGauges().refreshBefore(
			metrics.New(r.instruments.metrics.Registry, log))},

		{post, "/process", "process", httpio.HostCallsOnly(log, r.newProcess().Handler())},
		{post, "/poison", "poison", httpio.HostCallsOnly(log, poisoned.Handler())},
		{post, "/sweep", "sweep", httpio.HostCallsOnly(log, r.sweeper.Handler())},
	}
	function := &schedules.Function{Schedules: r.schedules, Stored: store, MaxBody: maxBody, Logger: log}
	for path, h := range function.Routes() {
		table = append(table, route{nil, "/api/schedules" + path, "schedules", limitReads(h)})
	}
	return r.auditChanges(table)
}

// newReceiver returns the handler of posted messages.
func (r *running) newReceiver() http.Handler {
	callbacks, _ := r.settings.callbackRules() // loadSettings has checked them
	maxBody := int64(r.settings.MaxBody)
	return r.instruments.export.Receive("/api/messages", &receive.Function{
		Contracts: r.contracts, Callbacks: callbacks, Log: r.appender, Drain: r.waker, Tickets: r.tickets,
		Waits:    &receive.Waits{Finals: r.drainer, States: r.store, MaxHeld: r.budgets.waits},
		Observer: r.instruments.metrics, Intake: httpio.NewIntake(r.budgets.intake, maxBody), MaxBody: maxBody,
		Now: time.Now, Logger: r.log,
	})
}

// newProcess returns the function that drains the lane of a ticket.
func (r *running) newProcess() *process.Function {
	return &process.Function{Drainer: r.drainer, Holder: r.drainer, Tickets: r.tickets, Lanes: r.settings.Lanes,
		Lease: time.Duration(r.settings.Lease), Now: time.Now, Logger: r.log}
}

// readTimeout bounds the reading of one answer.
const readTimeout = 30 * time.Second

// readOnly bounds the time of a handler that changes nothing.
func readOnly(h http.Handler) http.Handler { return httpio.WithTimeout(readTimeout, h) }

// toTheEnd lets a handler that changes something finish if its client disconnects.
func toTheEnd(h http.Handler) http.Handler { return httpio.IgnoreDisconnect(h) }

// limitReads is readOnly for GET, and toTheEnd for other methods.
func limitReads(h http.Handler) http.Handler {
	reading, changing := readOnly(h), toTheEnd(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reading.ServeHTTP(w, r)
			return
		}
		changing.ServeHTTP(w, r)
	})
}

// newRouter returns the handler of a table of routes. It answers 405 to methods that a path does not have,
// and 404 to other paths.
func newRouter(log *slog.Logger, table []route) http.Handler {
	mux := &http.ServeMux{}
	for i, first := range table {
		isSamePath := func(other route) bool { return other.path == first.path }
		if slices.IndexFunc(table, isSamePath) == i {
			mux.Handle(first.path, newPathHandler(log, slices.DeleteFunc(slices.Clone(table),
				func(other route) bool { return !isSamePath(other) })))
		}
	}
	mux.Handle("/", httpio.NotFound(log))
	return httpio.RefuseCrossSite(log, mux)
}

// newPathHandler returns the handler of the routes of one path. If one function serves the path, the 405 is
// an answer of that function in the log.
func newPathHandler(log *slog.Logger, routes []route) http.Handler {
	if len(routes) == 1 {
		only, h := routes[0], routes[0].handler
		if only.methods != nil {
			h = httpio.AllowMethods(h, only.methods...)
		}
		return httpio.Middleware(only.function, log, time.Now, h)
	}
	byMethod := map[string]http.Handler{}
	for _, one := range routes {
		for _, method := range one.methods {
			byMethod[method] = httpio.Middleware(one.function, log, time.Now, one.handler)
		}
	}
	return httpio.ByMethod(byMethod)
}
