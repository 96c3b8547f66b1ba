package view

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/query"
)

// ScheduledReader lists scheduled messages by due time; see overview.Overview.
type ScheduledReader interface {
	Scheduled(ctx context.Context, f overview.DueFilter, limit int, token string) (
		overview.SearchResult, error)
}

// Scheduled serves GET /api/scheduled. All fields are needed.
type Scheduled struct {
	Source     ScheduledReader
	Lanes      int
	ShownNames []string // the sorted names of all shown values; each is a column of an export
	// HasUpstreams is true if the settings have upstreams. An export then has the column
	// "upstream".
	HasUpstreams bool
	Now          func() time.Time
	Logger       *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Scheduled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := query.New(r.URL.Query())
	form := p.ReadFormat(r)
	filter := overview.DueFilter{From: p.ReadTime("from"), To: p.ReadTime("to")}
	if p.Values.Get("lane") != "" {
		n := p.ReadNumber("lane", 0, 0, f.Lanes-1)
		filter.Lane = &n
	}

	p.CheckSpan("from", filter.From, "to", filter.To)
	limit, token := p.ReadLimit(form), p.Values.Get("continue")
	p.RefuseOthers("lane", "from", "to", "limit", "continue", "format")

	if err := p.ToError(); err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	if form != "" {
		list := func(ctx context.Context, limit int, token string) (overview.SearchResult, error) {
			return f.Source.Scheduled(ctx, filter, limit, token)
		}
		newMessageExport("scheduled", f.ShownNames, f.HasUpstreams, list, f.Now, f.Logger).Write(w,
			r, form, limit, token)
		return
	}

	found, err := f.Source.Scheduled(r.Context(), filter, limit, token)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	httpio.WriteJSON(w, http.StatusOK, overview.DescribeMessages(found))
}
