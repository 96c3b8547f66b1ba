package view

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"weir/internal/export"
	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/query"
	"weir/internal/wire"
)

// Searcher finds messages; see overview.Overview.
type Searcher interface {
	Search(ctx context.Context, f overview.Filter, limit int, token string) (overview.SearchResult,
		error)
}

// Messages serves GET /api/messages. All fields are needed.
type Messages struct {
	Source     Searcher
	Lanes      int
	ShownNames []string // the sorted names of all shown values; each is a column of an export
	// HasUpstreams is true if the settings have upstreams. An export then has the column
	// "upstream".
	HasUpstreams bool
	Now          func() time.Time
	Logger       *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Messages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := query.ReadSearch(r, f.Lanes)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	if q.Format != "" {
		search := func(ctx context.Context, limit int, token string) (overview.SearchResult,
			error) {
			return f.Source.Search(ctx, q.Filter, limit, token)
		}

		newMessageExport("messages", f.ShownNames, f.HasUpstreams, search, f.Now, f.Logger).Write(w,
			r, q.Format, q.Limit, q.Continue)
		return
	}

	found, err := f.Source.Search(r.Context(), q.Filter, q.Limit, q.Continue)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}

	q.Order.Sort(found.Messages)
	httpio.WriteJSON(w, http.StatusOK, overview.DescribeMessages(found))
}

func newMessageExport(file string, shownNames []string, hasUpstreams bool,
	search func(ctx context.Context, limit int, token string) (overview.SearchResult, error),
	now func() time.Time, log *slog.Logger) *export.List[wire.MessageLine] {
	looked, notSearched := 0, 0
	return &export.List[wire.MessageLine]{File: file, Name: "messages",
		Columns: columnsOf(shownNames, hasUpstreams), Now: now, Log: log,
		NewRecord: func(m wire.MessageLine) []string {
			return newMessageRecord(&m, shownNames,
				hasUpstreams)
		},
		ReadPage: func(ctx context.Context, limit int, token string) (export.Page[wire.MessageLine],
			error) {
			found, err := search(ctx, limit, token)
			list := overview.DescribeMessages(found)
			looked, notSearched = looked+list.Looked, notSearched+list.NotSearched
			return export.Page[wire.MessageLine]{Lines: list.Messages, Next: list.Continue,
				End: struct {
					Looked      int    `json:"looked"`
					NotSearched int    `json:"notSearched,omitempty"`
					Complete    bool   `json:"complete"`
					Continue    string `json:"continue,omitempty"`
				}{looked, notSearched, list.Complete, list.Continue}}, err
		}}
}

// messageColumns are the first columns of exported messages; see columnsOf.
var messageColumns = []string{"id", "stage", "contract", "key", "lane", "sequence", "version",
	"attempts",
	"acceptedAt", "deliverAt", "finishedAt", "nextAttemptAt", "cmsStatus", "lastError", "size"}

// columnsOf returns the columns of exported messages: messageColumns, the column "upstream" if the
// settings have upstreams, and a column for each of shownNames.
func columnsOf(shownNames []string, hasUpstreams bool) []string {
	columns := slices.Clone(messageColumns)
	if hasUpstreams {
		columns = append(columns, "upstream")
	}

	for _, name := range shownNames {
		columns = append(columns, "shown."+name)
	}

	return columns
}

// newMessageRecord returns the cells of a message, in the order of columnsOf.
func newMessageRecord(m *wire.MessageLine, shownNames []string, hasUpstreams bool) []string {
	cells := []string{m.ID, string(m.Stage), m.Contract, m.Key, strconv.Itoa(m.Lane),
		strconv.FormatInt(m.Sequence, 10), m.Version, strconv.Itoa(m.AttemptCount),
		export.FormatTime(m.AcceptedAt),
		export.FormatTime(m.DeliverAt), export.FormatTime(m.FinishedAt),
		export.FormatTime(m.NextAttemptAt),
		export.FormatNumber(m.CMSStatus), m.LastError, strconv.Itoa(m.Size)}

	if hasUpstreams {
		cells = append(cells, m.Upstream)
	}

	for _, name := range shownNames {
		cells = append(cells, m.Shown[name])
	}

	return cells
}
