package app

import (
	"time"

	"weir/internal/filing"
	"weir/internal/storage"
	"weir/internal/upstream"
)

// newUpstreams returns the upstreams of the settings, or nil if the settings have none. The table
// has the counters of the daily quotas.
func (a *App) newUpstreams(table storage.Table) *upstream.Set {
	if len(a.settings.Upstreams) == 0 {
		return nil
	}

	var definitions []upstream.Definition
	for _, u := range a.settings.Upstreams {
		definitions = append(definitions, u.NewDefinition())
	}

	return upstream.NewSet(definitions, table, time.Now, a.instruments.metrics)
}

// newFiler returns a filing.Filer, which checks messages and appends them to the log. The Filer
// enforces the limits of the upstreams. If upstreams is nil, there are no limits.
func (a *App) newFiler(appender filing.Appender, upstreams *upstream.Set) *filing.Filer {
	callbacks, _ := a.settings.CallbackRules() // settings.Load has checked the rules
	f := &filing.Filer{Contracts: a.contracts, Callbacks: callbacks, Log: appender,
		Fold: a.settings.Fold.Rules}
	if upstreams != nil {
		f.Limits = upstreams
	}
	return f
}
