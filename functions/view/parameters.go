package view

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

// parameters parses the parameters of a URL, and collects the problems of the parameters.
type parameters struct {
	values   url.Values
	problems []weir.Problem
}

func (p *parameters) addProblem(name, message string) {
	p.problems = append(p.problems, weir.Problem{Path: name, Message: message})
}

// toError returns an error with all problems, or nil.
func (p *parameters) toError() error {
	if len(p.problems) == 0 {
		return nil
	}
	texts := make([]string, len(p.problems))
	for i, one := range p.problems {
		texts[i] = one.Sentence()
	}
	return &weir.Error{Kind: weir.Malformed, Op: "view", Message: strings.Join(texts, "; "), Problems: p.problems}
}

// refuseOthers adds the problems of httpio.QueryProblems: a parameter that is not in names, and one that the URL has
// more than once.
func (p *parameters) refuseOthers(names ...string) {
	p.problems = append(p.problems, httpio.QueryProblems(p.values, names...)...)
	slices.SortStableFunc(p.problems, func(a, b weir.Problem) int { return strings.Compare(a.Path, b.Path) })
}

// readText parses a text of up to maxText bytes.
func (p *parameters) readText(name string) string {
	s := p.values.Get(name)
	switch {
	case len(s) > maxText:
		p.addProblem(name, fmt.Sprintf("is over %d bytes", maxText))
	case !utf8.ValidString(s):
		p.addProblem(name, "is not UTF-8")
	}
	return s
}

// readNumber parses a whole number from low to high. If the parameter is empty or wrong, the result is the argument
// "absent".
func (p *parameters) readNumber(name string, absent, low, high int) int {
	s := p.values.Get(name)
	if s == "" {
		return absent
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		p.addProblem(name, fmt.Sprintf("must be a whole number from %d to %d", low, high))
		return absent
	}
	return n
}

func (p *parameters) readTime(name string) time.Time {
	s := p.values.Get(name)
	if s == "" {
		return time.Time{}
	}
	t, err := weir.ParseMoment(s)
	if err != nil {
		p.addProblem(name, err.Error())
	}
	return t
}

func (p *parameters) checkSpan(fromName string, from time.Time, toName string, to time.Time) {
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		p.addProblem(toName, "must be after "+fromName)
	}
}

// readStatusRange parses an HTTP status such as 422, or a class such as 5xx.
func (p *parameters) readStatusRange(name string) overview.StatusRange {
	s := p.values.Get(name)
	if s == "" {
		return overview.StatusRange{}
	}
	if class, ok := strings.CutSuffix(strings.ToLower(s), "xx"); ok && len(class) == 1 && "1" <= class && class <= "5" {
		first := int(class[0]-'0') * 100
		return overview.StatusRange{Low: first, High: first + 99}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 100 || n > 599 {
		p.addProblem(name, "must be a status from 100 to 599, or a class such as 5xx")
	}
	return overview.StatusRange{Low: n, High: n}
}

// readShown parses a filter such as "title:harbour", which selects messages whose Shown["title"] contains "harbour".
func (p *parameters) readShown(name string) overview.ShownFilter {
	text := p.readText(name)
	if text == "" {
		return overview.ShownFilter{}
	}
	field, wanted, hasColon := strings.Cut(text, ":")
	if !hasColon || field == "" {
		p.addProblem(name, "must be the name of a shown value, a colon and a text, such as title:harbour")
	}
	return overview.ShownFilter{Name: field, Text: wanted}
}

func (p *parameters) readOrder(name string) overview.Order {
	order, err := overview.ParseOrder(p.values.Get(name))
	if err != nil {
		p.addProblem(name, err.Error())
	}
	return order
}

var stages = []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying, weir.Delivered, weir.Dead, weir.Cancelled,
	weir.Superseded, weir.Discarded}

func (p *parameters) readStage() weir.Stage {
	s := weir.Stage(p.values.Get("stage"))
	if s != "" && !slices.Contains(stages, s) {
		list := strings.Trim(fmt.Sprint(stages), "[]")
		p.addProblem("stage", "must be one of "+strings.ReplaceAll(list, " ", ", "))
	}
	return s
}

// readFormat returns the format of the requested export; "" = no export, or an unknown format.
func (p *parameters) readFormat(r *http.Request) export.Format {
	f, err := export.ParseFormat(r)
	if err != nil {
		p.addProblem("format", err.Error())
	}
	return f
}

// readLimit parses the parameter "limit", which has a larger default and maximum in an export.
func (p *parameters) readLimit(f export.Format) int {
	if f == "" {
		return p.readNumber("limit", defaultLimit, 1, maxLimit)
	}
	return p.readNumber("limit", export.MaxLines, 1, export.MaxLines)
}
