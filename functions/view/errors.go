package view

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/wire"
)

// ErrorReader groups dead messages by cause; see overview.Overview.
type ErrorReader interface {
	Clusters(ctx context.Context, limit int) (overview.Clusters, error)
}

// Errors serves GET /api/errors. All fields are needed.
type Errors struct {
	Source ErrorReader
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Errors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &parameters{values: r.URL.Query()}
	limit := p.readNumber("limit", defaultLimit, 1, maxLimit)
	p.refuseOthers("limit")
	err := p.toError()
	var all overview.Clusters
	if err == nil {
		all, err = f.Source.Clusters(r.Context(), limit)
	}
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, DescribeErrors(all))
}

// DescribeErrors returns the JSON form of the causes of dead messages.
func DescribeErrors(all overview.Clusters) wire.ErrorList {
	list := wire.ErrorList{Errors: []wire.ErrorCause{}, Looked: all.Examined, Complete: all.Complete}
	for _, c := range all.List {
		list.Errors = append(list.Errors, wire.ErrorCause{
			Fingerprint: c.Fingerprint, Contract: c.Contract, CMSStatus: c.CMSStatus, Message: c.Message,
			Count: c.Count, Keys: c.Keys, FirstAt: c.First.UTC(), LastAt: c.Last.UTC(),
			Sample: wire.ErrorSample{ID: c.Sample.ID, Key: c.Sample.Key, Reason: c.Sample.Reason}})
	}
	return list
}
