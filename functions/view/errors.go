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
	"weir/internal/query"
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
	p := query.New(r.URL.Query())
	form := p.ReadFormat(r)
	limit := p.ReadNumber("limit", query.DefaultLimit, 1, query.MaxLimit)
	p.RefuseOthers("limit", "format")

	if err := p.ToError(); err != nil {
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

	httpio.WriteJSON(w, http.StatusOK, overview.DescribeErrors(all))
}

func (f *Errors) newExport() *export.List[wire.ErrorCause] {
	return &export.List[wire.ErrorCause]{File: "errors", Name: "errors", Now: f.Now, Log: f.Logger,
		Columns: []string{"fingerprint", "contract", "cmsStatus", "message", "count", "keys",
			"firstAt", "lastAt", "sampleId", "sampleKey", "sampleReason"},
		NewRecord: func(c wire.ErrorCause) []string {
			return []string{c.Fingerprint, c.Contract, export.FormatNumber(c.CMSStatus), c.Message,
				strconv.Itoa(c.Count),
				strconv.Itoa(c.Keys), export.FormatTime(c.FirstAt), export.FormatTime(c.LastAt),
				c.Sample.ID,
				c.Sample.Key,
				c.Sample.Reason}
		},
		ReadPage: func(ctx context.Context, limit int, _ string) (export.Page[wire.ErrorCause],
			error) {
			all, err := f.Source.Clusters(ctx, limit)
			list := overview.DescribeErrors(all)
			return export.Page[wire.ErrorCause]{Lines: list.Errors, End: struct {
				Looked   int  `json:"looked"`
				Complete bool `json:"complete"`
			}{list.Looked, list.Complete}}, err
		}}
}
