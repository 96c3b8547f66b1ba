package app

import (
	"context"
	"net/http"
	"strings"
	"time"

	"weir/functions/view"
	"weir/internal/contract"
	"weir/internal/dashboard"
	"weir/internal/history"
	"weir/internal/overview"
	"weir/internal/replay"
	"weir/internal/weir"
)

// newPages returns the operator's page.
func (r *running) newPages() http.Handler {
	source := &pageSource{r}
	return dashboard.New(dashboard.Config{Lanes: source, Past: source, Messages: source, Errors: source,
		Replays: source, Schedules: source, Contracts: r.settings.contractNames(), Now: time.Now, Log: r.log})
}

// pageSource reads the data of the pages.
type pageSource struct{ *running }

// Lanes implements dashboard.Lanes.
func (s *pageSource) Lanes(ctx context.Context) (dashboard.Report, error) {
	lanes, err := s.overview.Lanes(ctx)
	if err != nil {
		return dashboard.Report{}, err
	}
	var out dashboard.Report
	for i := range lanes {
		out.Lanes = append(out.Lanes, pageLane(&lanes[i]))
	}
	now, hours := time.Now(), s.calendar
	out.Calendar.Closed, out.Calendar.Reason, out.Calendar.Until = hours.At(now)
	out.Calendar.NextChange = hours.Next(now)
	return out, nil
}

func pageLane(l *overview.Lane) dashboard.Lane {
	out := dashboard.Lane{
		Number: l.Number, Scheduled: l.Scheduled, Queued: l.Queued, Retrying: l.Retrying, Exact: l.Exact, OldestAt: l.OldestAt,
		Counts: dashboard.Counts{Accepted: l.Accepted, Delivered: l.Counts.Delivered, Dead: l.Counts.Dead, Cancelled: l.Counts.Cancelled,
			Superseded: l.Counts.Superseded, Moved: l.Counts.Moved, Waiting: l.Waiting},
		Rate1: l.Rate1.PerMinute, Rate15: l.Rate15.PerMinute, EmptyIn: l.DrainEstimate.In, Held: l.Held, Holder: l.Holder, Fence: l.Fence,
		PausedBy: l.PauseCause.By, PausedUntil: l.PauseCause.Until, PauseReason: l.PauseCause.Reason, NextDueAt: l.NextDue, LastError: l.LastError, LastErrorAt: l.LastErrorAt,
	}
	for _, p := range l.Pauses {
		out.Pauses = append(out.Pauses, dashboard.Pause{Lane: l.Number, Key: p.Key, Reason: p.Reason, Since: p.Since, Until: p.Until})
	}
	return out
}

// Past implements dashboard.Past.
func (s *pageSource) Past(ctx context.Context, span, step time.Duration) (dashboard.History, error) {
	minutes, err := s.history.Series(ctx, span, step, -1)
	if err != nil {
		return dashboard.History{}, err
	}
	var out dashboard.History
	for i := range minutes {
		out.Steps = append(out.Steps, pageStep(&minutes[i]))
	}
	sum := history.Sum(minutes)
	out.Sum = pageStep(&sum)
	return out, nil
}

func pageStep(m *history.Minute) dashboard.Step {
	t := m.Total()
	return dashboard.Step{At: m.At, Accepted: t.Accepted, Delivered: t.Delivered, Dead: t.Dead, Waiting: t.Waiting, Oldest: t.Oldest,
		Attempts: m.Attempts, AttemptP50: m.Attempt.Quantile(0.5), AttemptP95: m.Attempt.Quantile(0.95), AttemptP99: m.Attempt.Quantile(0.99),
		LagP50: m.Lag.Quantile(0.5), LagP95: m.Lag.Quantile(0.95), Transactions: m.Transactions}
}

// Search implements dashboard.Messages.
func (s *pageSource) Search(ctx context.Context, q dashboard.Query) (dashboard.Found, error) {
	f := overview.Filter{Stage: weir.Stage(q.Stage), Key: q.Key, Contract: q.Contract, Fingerprint: q.Fingerprint, Text: q.Text, From: q.From, To: q.To}
	if q.Lane >= 0 {
		if q.Lane >= s.store.Lanes {
			return dashboard.Found{}, nil
		}
		f.Lane = &q.Lane
	}
	found, err := s.overview.Search(ctx, f, q.Limit, q.Continue)
	if err != nil {
		return dashboard.Found{}, err
	}
	out := dashboard.Found{Looked: found.Examined, NotSearched: found.BodiesSkipped, Continue: found.Continue}
	for i := range found.Messages {
		out.Messages = append(out.Messages, pageMessage(&found.Messages[i]))
	}
	return out, nil
}

// Message implements dashboard.Messages. What it waits for is left out where it cannot be
// read.
func (s *pageSource) Message(ctx context.Context, id weir.ID) (dashboard.Message, error) {
	st, err := s.store.Status(ctx, id)
	if err != nil {
		return dashboard.Message{}, err
	}
	m := pageMessage(&st)
	if st.Stage.Final() {
		return m, nil
	}
	o, err := s.overview.Forecast(ctx, st)
	if err != nil {
		s.log.Warn("dashboard: outlook not known", "message_id", m.ID, "err", err)
		return m, nil
	}
	m.Position, m.ExpectedAt, m.WaitsFor = o.Position, o.ExpectedAt, o.WaitsFor
	return m, nil
}

func pageMessage(st *weir.Status) dashboard.Message {
	m := &st.Message
	return dashboard.Message{
		ID: m.Public().String(), Stage: st.Stage, Contract: m.Contract, Key: m.Key, Version: m.Version, Lane: m.ID.Lane, Sequence: m.ID.Seq, Size: m.Size,
		AcceptedAt: m.AcceptedAt, DueAt: m.DueAt, FinishedAt: st.FinishedAt, NextAttemptAt: st.NextAttemptAt, AttemptCount: st.AttemptCount, Attempts: st.Attempts,
		LastError: st.LastError, CMSStatus: st.CMSStatus, SupersededBy: st.SupersededBy, EditedAt: st.EditedAt, EditNote: st.EditNote,
		Replays: st.Replays, ReplayAskedAt: st.ReplayAskedAt, ReplayForced: st.ReplayForced, ReplayRefused: st.ReplayRefused,
	}
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
	if err != nil { // it was accepted by other rules once
		return strings.ToValidUTF8(string(m.Body), "\uFFFD"), nil
	}
	return strings.TrimLeft(text, " "), nil
}

// Difference implements dashboard.Messages.
func (s *pageSource) Difference(ctx context.Context, id weir.ID) (string, error) {
	return view.Compare(ctx, s.store, id)
}

// Errors implements dashboard.Errors.
func (s *pageSource) Errors(ctx context.Context) (dashboard.Clusters, error) {
	const limit = 200
	all, err := s.overview.Clusters(ctx, limit)
	if err != nil {
		return dashboard.Clusters{}, err
	}
	out := dashboard.Clusters{Looked: all.Examined, Complete: all.Complete}
	for _, c := range all.List {
		out.Clusters = append(out.Clusters, dashboard.Cluster{Fingerprint: c.Fingerprint, Contract: c.Contract, Message: c.Message, CMSStatus: c.CMSStatus, Count: c.Count, Keys: c.Keys,
			FirstAt: c.First, LastAt: c.Last, SampleID: c.Sample.ID, SampleKey: c.Sample.Key, SampleText: c.Sample.Reason})
	}
	return out, nil
}

// Replays implements dashboard.Replays.
func (s *pageSource) Replays(ctx context.Context) ([]dashboard.Job, error) {
	jobs, err := s.replays.List(ctx)
	if err != nil {
		return nil, err
	}
	var out []dashboard.Job
	for i := range jobs {
		out = append(out, pageJob(&jobs[i]))
	}
	return out, nil
}

// Replay implements dashboard.Replays.
func (s *pageSource) Replay(ctx context.Context, id string) (dashboard.Job, error) {
	j, err := s.replays.Get(ctx, id)
	if err != nil {
		return dashboard.Job{}, err
	}
	return pageJob(&j), nil
}

func pageJob(j *replay.Job) dashboard.Job {
	out := dashboard.Job{
		ID: j.ID, State: string(j.State), Reason: j.Reason, StopReason: j.StopReason, Fingerprint: j.Filter.Fingerprint, Key: j.Filter.Key, Contract: j.Filter.Contract,
		Lane: -1, From: j.Filter.From, To: j.Filter.To, RatePerMinute: j.RatePerMinute, StopAtErrorRate: j.StopAtErrorRate, Force: j.Force,
		Matched: j.Matched, Replayed: j.Replayed, Refused: j.Refused, Skipped: j.Skipped, Delivered: j.Delivered, DeadAgain: j.DeadAgain, Otherwise: j.Otherwise, Waiting: j.Waiting,
		StartedAt: j.StartedAt, UpdatedAt: j.UpdatedAt, FinishedAt: j.FinishedAt,
	}
	if j.Filter.Lane != nil {
		out.Lane = *j.Filter.Lane
	}
	return out
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
		out = append(out, dashboard.Schedule{Name: d.Name, Cron: d.Cron, TimeZone: d.TimeZone, Paused: d.Paused, NextAt: d.NextAt,
			LastDueAt: d.Last.DueAt, LastID: d.Last.MessageID, Refusal: d.Refusal})
	}
	return out, nil
}
