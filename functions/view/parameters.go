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

// parameters reads an address's parameters and gathers what is wrong with them.
type parameters struct {
	values   url.Values
	problems []weir.Problem
}

func (p *parameters) wrong(name, message string) {
	p.problems = append(p.problems, weir.Problem{Path: name, Message: message})
}

// err names all that is wrong.
func (p *parameters) err() error {
	if len(p.problems) == 0 {
		return nil
	}
	texts := make([]string, len(p.problems))
	for i, one := range p.problems {
		texts[i] = one.Path + " " + one.Message
	}
	return &weir.Error{Kind: weir.Malformed, Op: "view", Message: strings.Join(texts, "; "), Problems: p.problems}
}

// hosts are parameters by which the host tells who asks.
var hosts = []string{"code", "clientId"}

// known refuses what is not among the names: a word misspelt would find everything.
func (p *parameters) known(names ...string) {
	for name, given := range p.values {
		switch {
		case slices.Contains(hosts, name):
		case !slices.Contains(names, name):
			p.wrong(strconv.QuoteToGraphic(cut(name)), "is not a parameter here: there are "+strings.Join(names, ", "))
		case len(given) > 1:
			p.wrong(name, "is given more than once")
		}
	}
	slices.SortStableFunc(p.problems, func(a, b weir.Problem) int { return strings.Compare(a.Path, b.Path) })
}

func cut(s string) string {
	const most = 40
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// text reads one of up to maxText bytes.
func (p *parameters) text(name string) string {
	s := p.values.Get(name)
	switch {
	case len(s) > maxText:
		p.wrong(name, fmt.Sprintf("is over %d bytes", maxText))
	case !utf8.ValidString(s):
		p.wrong(name, "is not UTF-8")
	}
	return s
}

// number reads a whole number within bounds.
func (p *parameters) number(name string, absent, low, high int) int {
	s := p.values.Get(name)
	if s == "" {
		return absent
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		p.wrong(name, fmt.Sprintf("must be a whole number from %d to %d", low, high))
		return absent
	}
	return n
}

// moment reads a time.
func (p *parameters) moment(name string) time.Time {
	s := p.values.Get(name)
	if s == "" {
		return time.Time{}
	}
	t, err := weir.ParseMoment(s)
	if err != nil {
		p.wrong(name, err.Error())
	}
	return t
}

var stages = []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying, weir.Delivered, weir.Dead, weir.Cancelled, weir.Superseded}

func (p *parameters) stage() weir.Stage {
	s := weir.Stage(p.values.Get("stage"))
	if s != "" && !slices.Contains(stages, s) {
		p.wrong("stage", fmt.Sprintf("must be one of %v", stages))
	}
	return s
}
