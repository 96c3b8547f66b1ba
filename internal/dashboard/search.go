package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

// pageSize is the largest number of messages in a list.
const pageSize = 50

// sortedSize is the largest number of messages in a list for which the operator chose an order.
// Only the messages of the list are sorted.
const sortedSize = 200

// option is one choice in a select field.
type option struct {
	Value, Text string
	Selected    bool
}

type searchView struct {
	*page
	Text, Key, Lane, From, To string
	Stages, Contracts         []option
	Upstreams                 []option          // nil = the settings have no upstreams
	More                      map[string]string // values of furtherFilters, by name
	Orders                    []option
	IsNarrowed                bool // at least one further filter is set
	IsFirst                   bool // the list is the first page of the search
	asked                     Query
	Found                     wire.MessageList
	Next                      string // address of the next page of the search
}

// IsSorted reports whether the operator chose another order than the default.
func (v *searchView) IsSorted() bool { return !v.Orders[0].Selected }

// Export returns the address at which the API serves the messages of the search as a file. The
// format is "csv" or "json".
func (v *searchView) Export(format string) string {
	q := &v.asked
	params := []string{"format", format, "stage", q.Stage, "key", q.Key, "contract", q.Contract,
		"text", q.Text, "from", isoOrEmpty(q.From), "to", isoOrEmpty(q.To)}
	if q.Lane >= 0 {
		params = append(params, "lane", strconv.Itoa(q.Lane))
	}

	for name, text := range q.Filters {
		params = append(params, name, text)
	}

	return v.API("/messages", params...)
}

func isoOrEmpty(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return formatISO(t)
}

// furtherFilters are the names of the filters in the section "More filters" of the form. The
// address of the page and the API use the same names.
var furtherFilters = []string{"keyPrefix", "version", "cmsStatus", "attemptsFrom", "attemptsTo",
	"finishedFrom", "finishedTo", "idempotencyKey", "shown", "upstream"}

// orders are the orders that an operator can choose for a list of messages.
var orders = []option{{"", "accepted, last first", false},
	{"accepted", "accepted, first first", false},
	{"-finished", "finished, last first", false}, {"finished", "finished, first first", false},
	{"due", "due, first first", false}, {"key", "key", false}, {"version", "version", false},
	{"-attempts", "attempts, most first", false}, {"status", "CMS status", false}}

func selectOrder(chosen string) []option {
	all := slices.Clone(orders)
	for i := range all {
		all[i].Selected = all[i].Value == chosen
	}
	return all
}

func (d *Dashboard) searchPage(ctx context.Context, p *page, r *http.Request) (view, error) {
	q := r.URL.Query()
	v := &searchView{page: p, Text: q.Get("q"), Key: q.Get("key"), Lane: q.Get("lane"),
		From: q.Get("from"), To: q.Get("to")}
	p.Title, p.Query = "Messages", v.Text
	v.Stages = selectOptions(q.Get("stage"), "any stage", stageNames()...)
	v.Contracts = selectOptions(q.Get("contract"), "any contract", d.Contracts...)
	if len(d.Upstreams) > 0 {
		v.Upstreams = selectOptions(q.Get("upstream"), "any upstream", d.Upstreams...)
	}

	v.Orders, v.More = selectOrder(q.Get("sort")), map[string]string{}
	for _, name := range furtherFilters {
		v.More[name] = q.Get(name)
		v.IsNarrowed = v.IsNarrowed || v.More[name] != ""
	}

	query, err := readQuery(r)
	if err != nil {
		return nil, err
	}

	v.asked = query
	if id, err := weir.ParseID(strings.TrimSpace(v.Text)); err == nil {
		if m, err := d.Source.Message(ctx, id); err == nil {
			v.Found = wire.MessageList{Messages: []wire.MessageLine{m}, Looked: 1}
			return v, nil
		}
	}

	v.Found, err = d.Source.Search(ctx, query)
	if e, ok := asError(err); ok && e.Kind != weir.Internal && e.Kind != weir.Unavailable {
		p.Notes = append(p.Notes, e.Message)
	} else if err != nil {
		p.noteUnread("the messages")
		d.Log.Warn("dashboard: not read", "err", err)
	}

	v.IsFirst = r.URL.Query().Get("continue") == ""
	if v.Found.Continue != "" {
		v.Next = p.With("continue", v.Found.Continue)
	}

	return v, nil
}

func stageNames() []string {
	var names []string
	for _, s := range []weir.Stage{weir.Scheduled, weir.Queued, weir.Retrying,
		weir.Delivered, weir.Dead, weir.Cancelled, weir.Superseded, weir.Discarded} {
		names = append(names, string(s))
	}
	return names
}

func selectOptions(chosen, none string, names ...string) []option {
	if chosen != "" && !slices.Contains(names, chosen) {
		// for example, a contract that the settings no longer have
		names = append(slices.Clone(names), chosen)
	}

	all := []option{{"", none, chosen == ""}}
	for _, n := range names {
		all = append(all, option{n, n, n == chosen})
	}

	return all
}

// readQuery parses the parameters of a search.
func readQuery(r *http.Request) (Query, error) {
	in := r.URL.Query()
	q := Query{Stage: in.Get("stage"), Key: in.Get("key"), Contract: in.Get("contract"),
		Text: strings.TrimSpace(in.Get("q")), Continue: in.Get("continue"), Lane: -1,
		Limit: pageSize,
		Sort:  in.Get("sort"), Filters: map[string]string{}}

	var wrong []string
	if q.Stage != "" && !slices.Contains(stageNames(), q.Stage) {
		wrong = append(wrong, "the stage is one of "+strings.Join(stageNames(), ", "))
	}

	if text := in.Get("lane"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			wrong = append(wrong, "the lane is a number from 0 on")
		}
		q.Lane = n
	}

	for _, f := range []struct {
		name string
		into *time.Time
	}{{"from", &q.From}, {"to", &q.To}} {
		at, ok := readMoment(in.Get(f.name))
		if !ok {
			wrong = append(wrong, "“"+f.name+"” is a date and a time, such as 2026-01-31T08:00")
		}
		*f.into = at
	}

	for _, name := range furtherFilters {
		text := in.Get(name)
		if at, ok := readMoment(text); ok && strings.HasPrefix(name, "finished") && text != "" {
			text = at.Format(time.RFC3339)
		}

		if text != "" {
			q.Filters[name] = text
		}
	}

	if q.Sort != "" {
		q.Limit = sortedSize
	}

	if len(wrong) > 0 {
		return q, &weir.Error{Kind: weir.Malformed, Op: "dashboard",
			Message: strings.Join(wrong, "; ")}
	}

	return q, nil
}

// readMoment parses a time, and returns it in UTC. A text without a zone is in UTC. For ""
// readMoment returns the zero time and true.
func readMoment(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, true
	}

	// as a form of a browser sends it
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), true
		}
	}

	at, err := weir.ParseMoment(text)
	return at, err == nil
}
