package app

import (
	"context"
	"net/http"
	"strings"
	"time"

	"weir/functions/view"
	"weir/internal/audit"
	"weir/internal/contract"
	"weir/internal/dashboard"
	"weir/internal/history"
	"weir/internal/overview"
	"weir/internal/weir"
	"weir/internal/wire"
)

// newPages returns the operator's page.
func (r *running) newPages() http.Handler {
	source := &pageSource{r}
	return dashboard.New(dashboard.Config{Lanes: source, Past: source, Messages: source, Errors: source,
		Replays: source, Schedules: source, Changes: source, Contracts: r.settings.contractNames(), Now: time.Now, Log: r.log})
}

// pageSource reads the data of the pages.
type pageSource struct{ *running }

// Lanes implements dashboard.Lanes.
func (s *pageSource) Lanes(ctx context.Context) (wire.LaneList, error) {
	lanes, err := s.overview.Lanes(ctx)
	if err != nil {
		return wire.LaneList{}, err
	}
	return view.DescribeLanes(lanes, wire.NewCalendar(s.calendar, time.Now())), nil
}

// Past implements dashboard.Past.
func (s *pageSource) Past(ctx context.Context, span, step time.Duration) (dashboard.History, error) {
	minutes, err := s.history.Series(ctx, span, step, -1)
	if err != nil {
		return dashboard.History{}, err
	}
	var out dashboard.History
	for i := range minutes {
		out.Steps = append(out.Steps, newStep(&minutes[i]))
	}
	sum := history.Sum(minutes)
	out.Sum = newStep(&sum)
	return out, nil
}

func newStep(m *history.Minute) dashboard.Step {
	t := m.Total()
	return dashboard.Step{At: m.At, Accepted: t.Accepted, Delivered: t.Delivered, Dead: t.Dead, Waiting: t.Waiting,
		Oldest: t.Oldest, Attempts: m.Attempts, AttemptP50: m.Attempt.Quantile(0.5),
		AttemptP95: m.Attempt.Quantile(0.95), AttemptP99: m.Attempt.Quantile(0.99),
		LagP50: m.Lag.Quantile(0.5), LagP95: m.Lag.Quantile(0.95), Transactions: m.Transactions}
}

// Search implements dashboard.Messages.
func (s *pageSource) Search(ctx context.Context, q dashboard.Query) (wire.MessageList, error) {
	f := overview.Filter{Stage: weir.Stage(q.Stage), Key: q.Key, Contract: q.Contract, Fingerprint: q.Fingerprint,
		Text: q.Text, From: q.From, To: q.To}
	if q.Lane >= 0 {
		if q.Lane >= s.store.Lanes {
			return wire.MessageList{}, nil
		}
		f.Lane = &q.Lane
	}
	found, err := s.overview.Search(ctx, f, q.Limit, q.Continue)
	if err != nil {
		return wire.MessageList{}, err
	}
	return view.DescribeMessages(found), nil
}

// Message implements dashboard.Messages. The forecast is absent if it cannot be read.
func (s *pageSource) Message(ctx context.Context, id weir.ID) (wire.MessageLine, error) {
	st, err := s.store.Status(ctx, id)
	if err != nil {
		return wire.MessageLine{}, err
	}
	m := wire.MessageLine{Message: wire.NewMessage(st), Size: st.Message.Size}
	if st.Stage.Final() {
		return m, nil
	}
	forecast, err := s.overview.Forecast(ctx, st)
	if err != nil {
		s.log.Warn("dashboard: outlook not known", "message_id", m.ID, "err", err)
		return m, nil
	}
	m.Position, m.ExpectedAt, m.WaitsFor = forecast.Position, forecast.ExpectedAt, forecast.WaitsFor
	return m, nil
}

// Body implements dashboard.Messages.
func (s *pageSource) Body(ctx context.Context, id weir.ID, edited bool) (string, error) {
	load := s.store.LoadMessage
	if edited {
		load = s.store.LoadEditedMessage
	}
	m, err := load(ctx, id)
	if err != nil {
		return "", err
	}
	text, err := contract.Text(m.ContentType, m.Body)
	if err != nil { // the message was accepted by other rules
		return strings.ToValidUTF8(string(m.Body), "\uFFFD"), nil
	}
	return strings.TrimLeft(text, " "), nil
}

// Difference implements dashboard.Messages.
func (s *pageSource) Difference(ctx context.Context, id weir.ID) (string, error) {
	return view.Compare(ctx, s.store, id)
}

// Errors implements dashboard.Errors.
func (s *pageSource) Errors(ctx context.Context) (wire.ErrorList, error) {
	const limit = 200
	all, err := s.overview.Clusters(ctx, limit)
	if err != nil {
		return wire.ErrorList{}, err
	}
	return view.DescribeErrors(all), nil
}

// Replays implements dashboard.Replays.
func (s *pageSource) Replays(ctx context.Context) ([]wire.Job, error) { return s.replays.List(ctx) }

// Replay implements dashboard.Replays.
func (s *pageSource) Replay(ctx context.Context, id string) (wire.Job, error) {
	return s.replays.Get(ctx, id)
}

// Schedules implements dashboard.Schedules.
func (s *pageSource) Schedules(ctx context.Context) ([]dashboard.Schedule, error) {
	all, err := s.schedules.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []dashboard.Schedule
	for i := range all {
		d := &all[i]
		out = append(out, dashboard.Schedule{Name: d.Name, Cron: d.Cron, TimeZone: d.TimeZone, Paused: d.Paused,
			NextAt:    d.NextAt,
			LastDueAt: d.Last.DueAt, LastID: d.Last.MessageID, Refusal: d.Refusal})
	}
	return out, nil
}

// pageChanges is the number of entries on a page of the audit log.
const pageChanges = 100

// Changes implements dashboard.Changes.
func (s *pageSource) Changes(ctx context.Context, token string) (dashboard.ChangeList, error) {
	page, err := s.audit.Read(ctx, audit.Query{Limit: pageChanges, Continue: token})
	out := dashboard.ChangeList{Continue: page.Continue}
	for _, e := range page.Entries {
		out.Changes = append(out.Changes, dashboard.Change{At: e.At, Action: e.Action, Subject: e.Subject, Detail: e.Detail,
			Function: e.Function, Principal: e.Principal, KeyID: e.KeyID, From: e.From, Call: e.Invocation, Status: e.Status})
	}
	return out, err
}
