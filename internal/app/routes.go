package app

import (
	"log/slog"
	"net/http"
	"time"

	"weir/functions/batches"
	"weir/functions/cancel"
	"weir/functions/health"
	"weir/functions/inbox"
	"weir/functions/metrics"
	"weir/functions/move"
	"weir/functions/openapi"
	"weir/functions/poison"
	"weir/functions/process"
	"weir/functions/receive"
	"weir/functions/schedules"
	"weir/functions/status"
	"weir/functions/sweep"
	"weir/functions/validate"
	"weir/functions/view"
	"weir/functions/write"
	"weir/internal/await"
	"weir/internal/bulk"
	"weir/internal/dashboard"
	"weir/internal/history"
	"weir/internal/httpio"
	"weir/internal/residence/stay"
)

// route names the handler for requests that have the path and one of the methods.
type route struct {
	methods  []string // nil = all methods; the handler checks the method itself
	path     string
	function string // name of the folder below functions/, for the log
	handler  http.Handler
}

var (
	get       = []string{http.MethodGet}
	getOrHead = []string{http.MethodGet, http.MethodHead}
	post      = []string{http.MethodPost}
	patch     = []string{http.MethodPatch}
	remove    = []string{http.MethodDelete}
)

// listRoutes returns all routes of a server. The host sends requests of HTTP triggers to paths
// below /api. It calls the other functions with POST /<function>.
//
// A message can be cancelled by two routes. DELETE needs the key of the function "cancel". POST
// needs the key of the function "write", because the operator's page makes all changes with that
// key.
func (r *running) listRoutes() []route {
	s, log, now, waker := &r.settings, r.log, time.Now, r.waker
	maxBody, lanes, laneOf := int64(s.MaxBody), s.Lanes, r.store.LaneOf
	messages, requests, pauses := r.store.Messages(), r.store.Requests(), r.store.Pauses()
	intake := httpio.NewIntake(r.budgets.intake, maxBody)
	checked := httpio.NewIntake(r.budgets.validate, maxBody)
	corrected := httpio.NewIntake(r.budgets.corrected, schedules.MaxDefinition(maxBody))
	turns := httpio.NewTurns(r.budgets.turns)
	reads := httpio.NewReads(r.budgets.reads, maxBody)
	pages := readOnly(r.newPages(turns, reads))
	cancelOne := toTheEnd(&cancel.Function{Log: requests, Waker: waker, Logger: log})
	jobs := readOnly(&view.Replays{Jobs: r.replays, Now: now, Logger: log})
	batched := &batches.Function{Batches: r.batches, Upstreams: r.upstreams, Memory: intake,
		Observer: submissions{r.instruments, history.WayBatch}, Logger: log}
	poisoned := &poison.Function{Tickets: r.tickets, Lanes: lanes, Observer: r.instruments,
		Logger: log}
	described := &openapi.Function{IsHidden: !s.OpenAPI, Logger: log}
	checks := health.New(r.healthChecks(), now)
	table := []route{
		{post, "/api/messages", "receive", r.newReceiver(intake)},
		{post, "/api/validate", "validate", readOnly(&validate.Function{Contracts: r.contracts,
			Headers: r.newFiler(r.appender, r.upstreams), Intake: checked, MaxBody: maxBody,
			Now: now, Logger: log})},
		{get, "/api/messages", "view", readOnly(&view.Messages{Source: r.overview, Lanes: lanes,
			ShownNames: s.ShownNames(), HasUpstreams: len(s.Upstreams) > 0, Now: now,
			Logger: log})},
		{get, "/api/scheduled", "view", readOnly(&view.Scheduled{Source: r.overview, Lanes: lanes,
			ShownNames: s.ShownNames(), HasUpstreams: len(s.Upstreams) > 0, Now: now,
			Logger: log})},
		{get, "/api/batches", "view", readOnly(batched.List())},
		{post, "/api/batches", "batches", toTheEnd(batched.Post())},
		{get, "/api/batches/{id}", "status", readOnly(batched.Get())},
		{remove, "/api/batches/{id}", "write", toTheEnd(batched.Cancel())},
		{get, "/api/messages/{id}", "status", readOnly(&status.Function{Log: messages,
			Forecaster: r.overview, Past: pastOf{r.history}, Logger: log})},
		{remove, "/api/messages/{id}", "cancel", cancelOne},
		{patch, "/api/messages/{id}", "move",
			toTheEnd(&move.Function{Log: requests, Waker: waker, Logger: log})},
		{get, "/api/messages/{id}/body", "view",
			readOnly(reads.Limit(log, &view.Body{Bodies: r.bodies, Logger: log}))},
		{get, "/api/messages/{id}/attempts", "view",
			readOnly(&view.Attempts{Source: messages, Logger: log})},
		{get, "/api/messages/{id}/difference", "view",
			readOnly(&view.Difference{Bodies: r.bodies, Turns: turns, Logger: log})},
		{post, "/api/messages/{id}/cancel", "write", cancelOne},
		{post, "/api/messages/{id}/replay", "write",
			toTheEnd(&write.Replay{Log: requests, Waker: waker, Logger: log})},
		{post, "/api/messages/{id}/edit", "write",
			toTheEnd(&write.Edit{Contracts: r.contracts, Messages: messages,
				Log: requests, Waker: waker, Intake: corrected, MaxBody: maxBody, Logger: log})},
		{post, "/api/messages/{id}/reveal", "write",
			toTheEnd(reads.Limit(log, &write.Reveal{Bodies: messages, Logger: log}))},
		{post, "/api/messages/{id}/erase", "write", toTheEnd(r.newErase())},
		{post, "/api/messages/{id}/discard", "write",
			toTheEnd(&write.Discard{Log: requests, Waker: waker, Logger: log})},
		{post, "/api/discards", "write", toTheEnd(&write.Discards{
			Log: bulk.Changer{Store: r.store}, Waker: waker, Lanes: lanes,
			Now: now, Logger: log})},
		{post, "/api/cancellations", "write", toTheEnd(&write.Cancellations{
			Log: bulk.Changer{Store: r.store}, Waker: waker, Lanes: lanes,
			Now: now, Logger: log})},

		{get, "/api/lanes", "view", readOnly(&view.Lanes{Source: r.overview, Calendar: r.calendar,
			Now: now, Logger: log})},
		{get, "/api/lanes/{lane}", "view", readOnly(&view.Lane{Source: r.overview, Logger: log})},
		{get, "/api/history", "view",
			readOnly(&view.History{Source: r.history, Lanes: lanes, Logger: log})},
		{get, "/api/errors", "view",
			readOnly(&view.Errors{Source: r.overview, Now: now, Logger: log})},
		{get, "/api/audit", "view", readOnly(&view.Audit{Reader: r.audit, Now: now, Logger: log})},
		{get, "/api/pauses", "view", readOnly(&view.Pauses{Reader: pauses, Calendar: r.calendar,
			Now: now, Logger: log})},
		{post, "/api/pause", "write", toTheEnd(&write.Pause{Pauser: pauses,
			NameAuthor: r.newAuditWrapper().AuthorOf, Lanes: lanes, LaneOf: laneOf, Now: now,
			Logger: log})},
		{post, "/api/resume", "write",
			toTheEnd(&write.Resume{Pauser: pauses, Waker: waker, Lanes: lanes,
				LaneOf: laneOf, Logger: log})},
		{get, "/api/versions", "view",
			readOnly(&view.Versions{Reader: messages, Contracts: s.SupersedingContracts(),
				LaneOf: laneOf, Logger: log})},
		{post, "/api/versions/forget", "write",
			toTheEnd(&write.ForgetVersion{Log: requests, Waker: waker,
				LaneOf: laneOf, Logger: log})},
		{get, "/api/remembered", "view",
			readOnly(&view.Remembered{Reader: messages, Contracts: s.ContractNames(),
				LaneOf: laneOf, Logger: log})},
		{post, "/api/remembered/forget", "write",
			toTheEnd(&write.ForgetRemembered{Log: requests, Waker: waker,
				LaneOf: laneOf, Logger: log})},
		{get, "/api/replays", "view", jobs},
		{post, "/api/replays", "write", toTheEnd(&write.Replays{Jobs: r.replays, Logger: log})},
		{get, "/api/replays/{id}", "view", jobs},
		{remove, "/api/replays/{id}", "write",
			toTheEnd(&write.CancelReplays{Jobs: r.replays, Logger: log})},
		{get, dashboard.Base, "view", pages},
		{get, dashboard.Base + "/{rest...}", "view", pages},
		{get, "/api/openapi.yaml", "openapi", readOnly(described.YAML())},
		{get, "/api/openapi.json", "openapi", readOnly(described.JSON())},
		{getOrHead, "/api/health", "health", checks},
		{get, "/api/checks", "view", readOnly(checks.Details())},
		{get, "/api/metrics", "metrics", r.gauges.refreshBefore(
			metrics.New(r.instruments.metrics.Registry, log))},

		{post, "/process", "process", r.newTriggerHandler(r.newProcess(r.drainer).Handler())},
		{post, "/poison", "poison", r.newTriggerHandler(poisoned.Handler())},
		{post, "/inbox", "inbox", r.newTriggerHandler(r.newInboxFunction().Handler())},
		{post, "/sweep", "sweep",
			r.newTriggerHandler((&sweep.Function{Sweeper: r.sweeper, Logger: log}).Handler())},
	}

	function := &schedules.Function{Schedules: r.schedules, Stored: messages,
		Contracts: r.contracts,
		Intake:    corrected, Turns: turns, MaxBody: maxBody, Now: now, Logger: log}
	for path, h := range function.Routes() {
		table = append(table, route{nil, "/api/schedules" + path, "schedules", limitReads(h)})
	}

	return r.auditChanges(table)
}

// newTriggerHandler returns the handler of a queue or timer function. A host that the platform is
// shutting down gets no trigger. So each call shows the drainer that the platform is not shutting
// this host down.
func (r *running) newTriggerHandler(h http.Handler) http.Handler {
	return httpio.HostCallsOnly(r.log,
		http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			r.permit.MarkTriggered()
			h.ServeHTTP(w, request)
		}))
}

func (r *running) newReceiver(intake *httpio.Intake) http.Handler {
	maxBody := int64(r.settings.MaxBody)
	return r.instruments.export.Receive("/api/messages", &receive.Function{
		Filer: r.newFiler(r.appender, r.upstreams), Upstreams: r.upstreams,
		Waker: r.waker.Filed(),
		Waits: &await.Waits{Finals: r.drainer, Statuses: r.store.Messages(), Lanes: r.store,
			MaxHeld: r.budgets.waits},
		Observer:    submissions{r.instruments, history.WayPost},
		Fingerprint: r.newAuditWrapper().FingerprintOf, Intake: intake, MaxBody: maxBody,
		Now: time.Now, Logger: r.log,
	})
}

func (r *running) newErase() *write.Erase {
	erase := &write.Erase{Messages: r.store.Messages(), Log: r.store.Requests(), Audit: r.audit,
		Waker: r.waker, Logger: r.log}
	if r.inbox != nil {
		erase.Files = r.inbox
	}
	return erase
}

func (r *running) newInboxFunction() *inbox.Function {
	f := &inbox.Function{Logger: r.log}
	if r.inbox != nil {
		f.Inbox = r.inbox
	}
	return f
}

// newProcess returns the function for tickets. Its invocations stay with the lanes of the drainer.
func (r *running) newProcess(drainer stay.Drainer) *process.Function {
	return &process.Function{Answerer: &stay.Answerer{Drainer: drainer, Permit: r.permit,
		Tickets: r.tickets,
		Lanes:   r.settings.Lanes, Lease: time.Duration(r.settings.Lease), Now: time.Now,
		Logger: r.log}, Logger: r.log}
}

const readTimeout = 30 * time.Second

// readOnly limits the time of a handler that changes nothing.
func readOnly(h http.Handler) http.Handler { return httpio.WithTimeout(readTimeout, h) }

// toTheEnd lets a handler that changes something finish even if its client disconnects.
func toTheEnd(h http.Handler) http.Handler { return httpio.IgnoreDisconnect(h) }

// limitReads applies readOnly to GET, and toTheEnd to all other methods.
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

// newRouter returns a handler that passes requests on by path and method. The handler answers 404
// to an unknown path, and 405 to a method that the path does not have. The mux's patterns have no
// methods, for two reasons. A pattern for GET would also match HEAD, which the host routes only to
// the function "health". And the mux itself would answer 405 in plain text.
func newRouter(log *slog.Logger, table []route) http.Handler {
	byPath := map[string][]route{}
	for _, one := range table {
		byPath[one.path] = append(byPath[one.path], one)
	}

	mux := http.NewServeMux()
	for path, routes := range byPath {
		mux.Handle(path, newPathHandler(log, routes))
	}

	mux.Handle("/", httpio.NotFound(log))

	return httpio.RefuseCrossSite(log, mux)
}

// newPathHandler returns the handler of the routes of one path. If the path has only one route,
// answers with 405 are also logged, under the function of that route.
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
