package view

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

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
	Source Searcher
	Lanes  int
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Messages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := ParseSearch(r.URL.Query(), f.Lanes)
	var found overview.SearchResult
	if err == nil {
		found, err = f.Source.Search(r.Context(), q.Filter, q.Limit, q.Continue)
	}
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, DescribeMessages(found))
}

// DescribeMessages returns the JSON form of a page of a search.
func DescribeMessages(found overview.SearchResult) wire.MessageList {
	list := wire.MessageList{Messages: []wire.MessageLine{}, Looked: found.Examined,
		NotSearched: found.BodiesSkipped, Complete: found.Complete, Continue: found.Continue}
	for _, st := range found.Messages {
		st.Attempts = nil // incomplete in the rows that a search reads
		list.Messages = append(list.Messages, wire.MessageLine{Message: wire.NewMessage(st), Size: st.Message.Size})
	}
	return list
}

const (
	defaultLimit = 50
	maxLimit     = 200
	// maxText limits the bytes of a parameter: a key has up to 1 KiB.
	maxText = 1 << 10
)

// Search has the parameters of a search.
type Search struct {
	Filter   overview.Filter
	Limit    int
	Continue string
}

// ParseSearch parses the parameters of a search. The error names every problem.
func ParseSearch(values url.Values, lanes int) (Search, error) {
	p := &parameters{values: values}
	s := Search{
		Filter: overview.Filter{
			Stage: p.readStage(), Key: p.readText("key"), Contract: p.readText("contract"),
			Fingerprint: p.readText("fingerprint"), Text: p.readText("text"),
			From: p.readTime("from"), To: p.readTime("to"),
		},
		Limit: p.readNumber("limit", defaultLimit, 1, maxLimit), Continue: values.Get("continue"),
	}
	if values.Get("lane") != "" {
		n := p.readNumber("lane", 0, 0, lanes-1)
		s.Filter.Lane = &n
	}
	if f := s.Filter; !f.From.IsZero() && !f.To.IsZero() && !f.From.Before(f.To) {
		p.addProblem("to", "must be after from")
	}
	if f := s.Filter; f.Fingerprint != "" && f.Stage != "" && f.Stage != weir.Dead {
		p.addProblem("fingerprint", "only dead messages have one")
	}
	p.refuseOthers("stage", "key", "contract", "fingerprint", "lane", "from", "to", "text", "limit", "continue")
	return s, p.toError()
}
