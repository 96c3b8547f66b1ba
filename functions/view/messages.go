package view

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"weir/internal/export"
	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Searcher finds messages; see overview.Overview.
type Searcher interface {
	Search(ctx context.Context, f overview.Filter, limit int, token string) (overview.SearchResult, error)
}

// Messages serves GET /api/messages. All fields are needed.
type Messages struct {
	Source     Searcher
	Lanes      int
	ShownNames []string // the sorted names of all shown values; each is a column of an export
	// HasUpstreams is true if the settings have upstreams. An export then has the column "upstream".
	HasUpstreams bool
	Now          func() time.Time
	Logger       *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Messages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parseSearch(r, f.Lanes)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	if q.format != "" {
		search := func(ctx context.Context, limit int, token string) (overview.SearchResult, error) {
			return f.Source.Search(ctx, q.Filter, limit, token)
		}
		newMessageExport("messages", f.ShownNames, f.HasUpstreams, search, f.Now, f.Logger).Write(w, r, q.format,
			q.Limit, q.Continue)
		return
	}
	found, err := f.Source.Search(r.Context(), q.Filter, q.Limit, q.Continue)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	q.Order.Sort(found.Messages)
	httpio.WriteJSON(w, http.StatusOK, DescribeMessages(found))
}

func newMessageExport(file string, shownNames []string, hasUpstreams bool,
	search func(ctx context.Context, limit int, token string) (overview.SearchResult, error),
	now func() time.Time, log *slog.Logger) *export.List[wire.MessageLine] {
	looked, notSearched := 0, 0
	return &export.List[wire.MessageLine]{File: file, Name: "messages", Columns: columnsOf(shownNames, hasUpstreams),
		Now: now, Log: log,
		NewRecord: func(m wire.MessageLine) []string { return newMessageRecord(&m, shownNames, hasUpstreams) },
		ReadPage: func(ctx context.Context, limit int, token string) (export.Page[wire.MessageLine], error) {
			found, err := search(ctx, limit, token)
			list := DescribeMessages(found)
			looked, notSearched = looked+list.Looked, notSearched+list.NotSearched
			return export.Page[wire.MessageLine]{Lines: list.Messages, Next: list.Continue, End: struct {
				Looked      int    `json:"looked"`
				NotSearched int    `json:"notSearched,omitempty"`
				Complete    bool   `json:"complete"`
				Continue    string `json:"continue,omitempty"`
			}{looked, notSearched, list.Complete, list.Continue}}, err
		}}
}

// messageColumns are the first columns of exported messages; see columnsOf.
var messageColumns = []string{"id", "stage", "contract", "key", "lane", "sequence", "version", "attempts",
	"acceptedAt", "deliverAt", "finishedAt", "nextAttemptAt", "cmsStatus", "lastError", "size"}

// columnsOf returns the columns of exported messages: messageColumns, the column "upstream" if the settings have
// upstreams, and a column for each of shownNames.
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
		strconv.FormatInt(m.Sequence, 10), m.Version, strconv.Itoa(m.AttemptCount), export.FormatTime(m.AcceptedAt),
		export.FormatTime(m.DeliverAt), export.FormatTime(m.FinishedAt), export.FormatTime(m.NextAttemptAt),
		export.FormatNumber(m.CMSStatus), m.LastError, strconv.Itoa(m.Size)}
	if hasUpstreams {
		cells = append(cells, m.Upstream)
	}
	for _, name := range shownNames {
		cells = append(cells, m.Shown[name])
	}
	return cells
}

// DescribeMessages returns the JSON form of a page of messages.
func DescribeMessages(found overview.SearchResult) wire.MessageList {
	list := wire.MessageList{Messages: []wire.MessageLine{}, Looked: found.Examined,
		NotSearched: found.BodiesSkipped, Complete: found.Complete, Continue: found.Continue}
	for _, st := range found.Messages {
		st.Attempts = nil // the rows that a search reads do not have all attempts
		list.Messages = append(list.Messages, wire.MessageLine{Message: wire.NewMessage(st), Size: st.Message.Size})
	}
	return list
}

const (
	defaultLimit = 50
	maxLimit     = 200
	// maxText limits the bytes of a parameter. An ordering key has the same limit.
	maxText = 1 << 10
)

// maxAttempts limits the values of the parameters "attemptsFrom" and "attemptsTo".
const maxAttempts = 1_000_000

var searchParameters = []string{"stage", "key", "keyPrefix", "contract", "upstream", "version", "fingerprint",
	"cmsStatus",
	"attemptsFrom", "attemptsTo", "idempotencyKey", "shown", "lane", "from", "to", "finishedFrom", "finishedTo", "text", "sort",
	"limit", "continue", "format"}

// Search has the parameters of a search.
type Search struct {
	Filter   overview.Filter
	Order    overview.Order // the order of messages within one answer
	Limit    int
	Continue string
	format   export.Format
}

// ParseSearch parses the parameters of a search for the operator's page. The argument "lanes" is the number of lanes.
// The error names every problem.
func ParseSearch(values url.Values, lanes int) (Search, error) {
	p := &parameters{values: values}
	return p.readSearch(lanes, "")
}

// parseSearch parses the parameters of a request, including the format of an export.
func parseSearch(r *http.Request, lanes int) (Search, error) {
	p := &parameters{values: r.URL.Query()}
	f := p.readFormat(r)
	if f != "" && p.values.Get("sort") != "" {
		p.addProblem("sort", "cannot be combined with an export")
	}
	return p.readSearch(lanes, f)
}

// readSearch parses the parameters of a search, except "format". The argument "form" is the format of the requested
// export; "" = no export.
func (p *parameters) readSearch(lanes int, form export.Format) (Search, error) {
	s := Search{
		format: form,
		Filter: overview.Filter{
			Stage: p.readStage(), Key: p.readText("key"), Contract: p.readText("contract"),
			Upstream:    p.readText("upstream"),
			Fingerprint: p.readText("fingerprint"), Text: p.readText("text"),
			From: p.readTime("from"), To: p.readTime("to"),
			KeyPrefix: p.readText("keyPrefix"), Version: p.readText("version"), CMSStatus: p.readStatusRange("cmsStatus"),
			MinAttempts:  p.readNumber("attemptsFrom", 0, 1, maxAttempts),
			MaxAttempts:  p.readNumber("attemptsTo", 0, 1, maxAttempts),
			FinishedFrom: p.readTime("finishedFrom"), FinishedTo: p.readTime("finishedTo"),
			IdempotencyKey: p.readText("idempotencyKey"), Shown: p.readShown("shown"),
		},
		Order: p.readOrder("sort"),
		Limit: p.readLimit(form), Continue: p.values.Get("continue"),
	}
	if p.values.Get("lane") != "" {
		n := p.readNumber("lane", 0, 0, lanes-1)
		s.Filter.Lane = &n
	}
	f := s.Filter
	p.checkSpan("from", f.From, "to", f.To)
	p.checkSpan("finishedFrom", f.FinishedFrom, "finishedTo", f.FinishedTo)
	if f.MaxAttempts > 0 && f.MaxAttempts < f.MinAttempts {
		p.addProblem("attemptsTo", "must not be below attemptsFrom")
	}
	if f.Fingerprint != "" && f.Stage != "" && f.Stage != weir.Dead {
		p.addProblem("fingerprint", "only dead messages have one")
	}
	p.refuseOthers(searchParameters...)
	return s, p.toError()
}
