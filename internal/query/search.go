package query

import (
	"net/http"
	"net/url"

	"weir/internal/export"
	"weir/internal/overview"
	"weir/internal/weir"
)

// Bounds of parameters. DefaultLimit and MaxLimit are those of the parameter "limit".
const (
	DefaultLimit = 50
	MaxLimit     = 200
	// maxText limits the bytes of a parameter. An ordering key has the same limit.
	maxText = 1 << 10
)

// maxAttempts limits the values of the parameters "attemptsFrom" and "attemptsTo".
const maxAttempts = 1_000_000

var searchParameters = []string{"stage", "key", "keyPrefix", "contract", "upstream", "version",
	"fingerprint", "cmsStatus",
	"attemptsFrom", "attemptsTo", "idempotencyKey", "shown", "lane", "from", "to", "finishedFrom",
	"finishedTo", "text", "sort",
	"limit", "continue", "format"}

// Search has the parameters of a search.
type Search struct {
	Filter   overview.Filter
	Order    overview.Order // the order of messages within one answer
	Limit    int
	Continue string
	Format   export.Format // of the requested export; "" = no export
}

// ParseSearch parses the parameters of a search for the operator's page. The argument "lanes" is
// the number of lanes. The error names every problem.
func ParseSearch(values url.Values, lanes int) (Search, error) {
	p := New(values)
	return p.readSearch(lanes, "")
}

// ReadSearch parses the parameters of a request, including the format of an export.
func ReadSearch(r *http.Request, lanes int) (Search, error) {
	p := New(r.URL.Query())
	f := p.ReadFormat(r)
	if f != "" && p.Values.Get("sort") != "" {
		p.AddProblem("sort", "cannot be combined with an export")
	}
	return p.readSearch(lanes, f)
}

// readSearch parses the parameters of a search, except "format". The argument "form" is the format
// of the requested export; "" = no export.
func (p *Parameters) readSearch(lanes int, form export.Format) (Search, error) {
	s := Search{
		Format: form,
		Filter: overview.Filter{
			Stage: p.readStage(), Key: p.ReadText("key"), Contract: p.ReadText("contract"),
			Upstream:    p.ReadText("upstream"),
			Fingerprint: p.ReadText("fingerprint"), Text: p.ReadText("text"),
			From: p.ReadTime("from"), To: p.ReadTime("to"),
			KeyPrefix: p.ReadText("keyPrefix"), Version: p.ReadText("version"),
			CMSStatus:    p.readStatusRange("cmsStatus"),
			MinAttempts:  p.ReadNumber("attemptsFrom", 0, 1, maxAttempts),
			MaxAttempts:  p.ReadNumber("attemptsTo", 0, 1, maxAttempts),
			FinishedFrom: p.ReadTime("finishedFrom"), FinishedTo: p.ReadTime("finishedTo"),
			IdempotencyKey: p.ReadText("idempotencyKey"), Shown: p.readShown("shown"),
		},
		Order: p.readOrder("sort"),
		Limit: p.ReadLimit(form), Continue: p.Values.Get("continue"),
	}

	if p.Values.Get("lane") != "" {
		n := p.ReadNumber("lane", 0, 0, lanes-1)
		s.Filter.Lane = &n
	}

	f := s.Filter
	p.CheckSpan("from", f.From, "to", f.To)
	p.CheckSpan("finishedFrom", f.FinishedFrom, "finishedTo", f.FinishedTo)
	if f.MaxAttempts > 0 && f.MaxAttempts < f.MinAttempts {
		p.AddProblem("attemptsTo", "must not be below attemptsFrom")
	}

	if f.Fingerprint != "" && f.Stage != "" && f.Stage != weir.Dead {
		p.AddProblem("fingerprint", "only dead messages have one")
	}

	p.RefuseOthers(searchParameters...)

	return s, p.ToError()
}
