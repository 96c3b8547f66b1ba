// Package query parses the parameters of URLs, such as those of a search.
package query

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/export"
	"weir/internal/httpio"
	"weir/internal/overview"
	"weir/internal/weir"
)

// Parameters parses the parameters of a URL, and collects the problems of the parameters.
type Parameters struct {
	url.Values
	problems []weir.Problem
}

// New returns the Parameters of a URL.
func New(values url.Values) *Parameters { return &Parameters{Values: values} }

// AddProblem adds the problem of a parameter.
func (p *Parameters) AddProblem(name, message string) {
	p.problems = append(p.problems, weir.Problem{Path: name, Message: message})
}

// ToError returns an error with all problems, or nil.
func (p *Parameters) ToError() error {
	if len(p.problems) == 0 {
		return nil
	}

	texts := make([]string, len(p.problems))
	for i, one := range p.problems {
		texts[i] = one.Sentence()
	}

	return &weir.Error{Kind: weir.Malformed, Op: "view", Message: strings.Join(texts, "; "),
		Problems: p.problems}
}

// RefuseOthers adds the problems of httpio.QueryProblems: a parameter that is not in names, and one
// that the URL has more than once.
func (p *Parameters) RefuseOthers(names ...string) {
	p.problems = append(p.problems, httpio.QueryProblems(p.Values, names...)...)
	slices.SortStableFunc(p.problems,
		func(a, b weir.Problem) int { return strings.Compare(a.Path, b.Path) })
}

// ReadText parses a text of up to maxText bytes.
func (p *Parameters) ReadText(name string) string {
	s := p.Values.Get(name)
	switch {
	case len(s) > maxText:
		p.AddProblem(name, fmt.Sprintf("is over %d bytes", maxText))
	case !utf8.ValidString(s):
		p.AddProblem(name, "is not UTF-8")
	}

	return s
}

// ReadNumber parses a whole number from low to high. If the parameter is empty or wrong, the result
// is the argument "absent".
func (p *Parameters) ReadNumber(name string, absent, low, high int) int {
	s := p.Values.Get(name)
	if s == "" {
		return absent
	}

	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		p.AddProblem(name, fmt.Sprintf("must be a whole number from %d to %d", low, high))
		return absent
	}

	return n
}

// ReadTime parses a time; the zero time = the parameter is empty or wrong.
func (p *Parameters) ReadTime(name string) time.Time {
	s := p.Values.Get(name)
	if s == "" {
		return time.Time{}
	}

	t, err := weir.ParseMoment(s)
	if err != nil {
		p.AddProblem(name, err.Error())
	}

	return t
}

// CheckSpan adds a problem if a span of two parameters has no time in it.
func (p *Parameters) CheckSpan(fromName string, from time.Time, toName string, to time.Time) {
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		p.AddProblem(toName, "must be after "+fromName)
	}
}

// readStatusRange parses an HTTP status such as 422, or a class such as 5xx.
func (p *Parameters) readStatusRange(name string) overview.StatusRange {
	s := p.Values.Get(name)
	if s == "" {
		return overview.StatusRange{}
	}

	if class, ok := strings.CutSuffix(strings.ToLower(s), "xx"); ok && len(class) == 1 &&
		"1" <= class && class <= "5" {
		first := int(class[0]-'0') * 100
		return overview.StatusRange{Low: first, High: first + 99}
	}

	n, err := strconv.Atoi(s)
	if err != nil || n < 100 || n > 599 {
		p.AddProblem(name, "must be a status from 100 to 599, or a class such as 5xx")
	}

	return overview.StatusRange{Low: n, High: n}
}

// readShown parses a filter such as "title:harbour", which selects messages whose Shown["title"]
// contains "harbour".
func (p *Parameters) readShown(name string) overview.ShownFilter {
	text := p.ReadText(name)
	if text == "" {
		return overview.ShownFilter{}
	}

	field, wanted, hasColon := strings.Cut(text, ":")
	if !hasColon || field == "" {
		p.AddProblem(name, "must be the name of a shown value, a colon and a text, such as title:harbour")
	}

	return overview.ShownFilter{Name: field, Text: wanted}
}

func (p *Parameters) readOrder(name string) overview.Order {
	order, err := overview.ParseOrder(p.Values.Get(name))
	if err != nil {
		p.AddProblem(name, err.Error())
	}
	return order
}

var stages = []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying, weir.Delivered, weir.Dead,
	weir.Cancelled, weir.Superseded, weir.Discarded}

func (p *Parameters) readStage() weir.Stage {
	s := weir.Stage(p.Values.Get("stage"))
	if s != "" && !slices.Contains(stages, s) {
		list := strings.Trim(fmt.Sprint(stages), "[]")
		p.AddProblem("stage", "must be one of "+strings.ReplaceAll(list, " ", ", "))
	}
	return s
}

// ReadFormat returns the format of the requested export; "" = no export, or an unknown format.
func (p *Parameters) ReadFormat(r *http.Request) export.Format {
	f, err := export.ParseFormat(r)
	if err != nil {
		p.AddProblem("format", err.Error())
	}
	return f
}

// ReadLimit parses the parameter "limit", which has a larger default and maximum in an export.
func (p *Parameters) ReadLimit(f export.Format) int {
	if f == "" {
		return p.ReadNumber("limit", DefaultLimit, 1, MaxLimit)
	}
	return p.ReadNumber("limit", export.MaxLines, 1, export.MaxLines)
}
