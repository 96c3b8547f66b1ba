package main

import (
	"net/http"
	"time"

	"weir/functions/view"
	"weir/internal/history"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/openapi"
	"weir/internal/overview"
)

// operator is what the operator's routes are made from.
type operator struct {
	*Program
	mux   *router
	store *lane.Store
	call  caller

	keeper   *history.Keeper
	overview *overview.Overview
}

// newOperator prepares what several addresses use.
func (p *Program) newOperator(mux *router, store *lane.Store, call caller) *operator {
	keeper := p.keepHistory(store)
	all := &overview.Overview{Store: store, Rates: keeper, Calendar: p.calendar, Now: time.Now}
	return &operator{p, mux, store, call, keeper, all}
}

// routes adds what the functions view and write serve. A path that takes other methods too
// is in Program.routes.
func (o *operator) routes() {
	o.pauses()
	o.replays()
	o.bulk()
	o.cancellations()
	o.reads()
	o.dashboard()
	o.view("/api/history", &view.History{Source: o.keeper, Lanes: o.settings.Lanes, Logger: o.log})
	o.view("/api/openapi.yaml", openapi.Handler())
}

// readLimit is what the reading of one answer may take.
const readLimit = 30 * time.Second

// view adds an address that is read.
func (o *operator) view(pattern string, h http.Handler) {
	o.mux.Handle(pattern, o.reading(httpio.AllowMethods(h, http.MethodGet)))
}

// reading is a part of the function view.
func (o *operator) reading(h http.Handler) http.Handler {
	return httpio.Middleware("view", o.log, time.Now, httpio.WithTimeout(readLimit, h))
}

// write adds an address that changes something.
func (o *operator) write(pattern, method string, h http.Handler) {
	o.mux.Handle(pattern, o.changing(httpio.AllowMethods(h, method)))
}

// changing is a part of the function write.
func (o *operator) changing(h http.Handler) http.Handler {
	return httpio.Middleware("write", o.log, time.Now, httpio.IgnoreDisconnect(h))
}
