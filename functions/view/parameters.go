package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/weir"
)

// parameters parses the parameters of a URL, and collects their problems.
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
		texts[i] = one.Path + " " + one.Message
	}
	return &weir.Error{Kind: weir.Malformed, Op: "view", Message: strings.Join(texts, "; "), Problems: p.problems}
}

// hostParameters are for the host, which authenticates the caller by them.
var hostParameters = []string{"code", "clientId"}

// refuseOthers refuses parameters other than the named ones: a search without its misspelt filter would find
// everything. It refuses repeated parameters, too.
func (p *parameters) refuseOthers(names ...string) {
	for name, given := range p.values {
		switch {
		case slices.Contains(hostParameters, name):
		case !slices.Contains(names, name):
			p.addProblem(strconv.QuoteToGraphic(truncateName(name)),
				"is not a parameter here: there are "+strings.Join(names, ", "))
		case len(given) > 1:
			p.addProblem(name, "is given more than once")
		}
	}
	slices.SortStableFunc(p.problems, func(a, b weir.Problem) int { return strings.Compare(a.Path, b.Path) })
}

func truncateName(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
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

// readNumber parses a whole number within bounds.
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

var stages = []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying, weir.Delivered, weir.Dead, weir.Cancelled,
	weir.Superseded}

func (p *parameters) readStage() weir.Stage {
	s := weir.Stage(p.values.Get("stage"))
	if s != "" && !slices.Contains(stages, s) {
		p.addProblem("stage", fmt.Sprintf("must be one of %v", stages))
	}
	return s
}
