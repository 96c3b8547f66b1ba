package view

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"weir/internal/export"
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
	Now    func() time.Time
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Errors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := &parameters{values: r.URL.Query()}
	form := p.readFormat(r)
	limit := p.readNumber("limit", defaultLimit, 1, maxLimit)
	p.refuseOthers("limit", "format")
	if err := p.toError(); err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	if form != "" {
		f.newExport().Write(w, r, form, limit, "")
		return
	}
	all, err := f.Source.Clusters(r.Context(), limit)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, DescribeErrors(all))
}

func (f *Errors) newExport() *export.List[wire.ErrorCause] {
	return &export.List[wire.ErrorCause]{File: "errors", Name: "errors", Now: f.Now, Log: f.Logger,
		Columns: []string{"fingerprint", "contract", "cmsStatus", "message", "count", "keys", "firstAt", "lastAt",
			"sampleId", "sampleKey", "sampleReason"},
		NewRecord: func(c wire.ErrorCause) []string {
			return []string{c.Fingerprint, c.Contract, export.FormatNumber(c.CMSStatus), c.Message,
				strconv.Itoa(c.Count),
				strconv.Itoa(c.Keys), export.FormatTime(c.FirstAt), export.FormatTime(c.LastAt), c.Sample.ID,
				c.Sample.Key,
				c.Sample.Reason}
		},
		ReadPage: func(ctx context.Context, limit int, _ string) (export.Page[wire.ErrorCause], error) {
			all, err := f.Source.Clusters(ctx, limit)
			list := DescribeErrors(all)
			return export.Page[wire.ErrorCause]{Lines: list.Errors, End: struct {
				Looked   int  `json:"looked"`
				Complete bool `json:"complete"`
			}{list.Looked, list.Complete}}, err
		}}
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
