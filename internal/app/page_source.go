package app

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/internal/audit"
	"weir/internal/contract"
	"weir/internal/dashboard"
	"weir/internal/difference"
	"weir/internal/history"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/overview"
	"weir/internal/query"
	"weir/internal/recur"
	"weir/internal/redact"
	"weir/internal/storage"
	"weir/internal/trial"
	"weir/internal/weir"
	"weir/internal/wire"
)

func (r *running) newPages(turns *httpio.Turns, reads *httpio.Reads) http.Handler {
	source := &pageSource{r, turns}
	signOut := ""
	if r.door != nil {
		signOut = r.door.SignOut()
	}

	return dashboard.New(
		dashboard.Config{SignOut: signOut, Source: source, Reads: reads,
			ProofFor:  r.newAuditWrapper().ProofFor,
			Contracts: r.settings.ContractNames(), Upstreams: r.settings.UpstreamNames(),
			Now: time.Now,
			Log: r.log},
	)
}

// pageSource reads the data of the operator's pages from the parts of the server.
type pageSource struct {
	*running
	turns *httpio.Turns
}

// Lanes implements dashboard.Source.
func (s *pageSource) Lanes(ctx context.Context) (wire.LaneList, error) {
	lanes, err := s.overview.Lanes(ctx)
	if err != nil {
		return wire.LaneList{}, err
	}
	return overview.DescribeLanes(lanes, wire.NewCalendar(s.calendar, time.Now())), nil
}

// Past implements dashboard.Source.
func (s *pageSource) Past(ctx context.Context, span,
	step time.Duration) (dashboard.History, error) {
	minutes, err := s.history.Series(ctx, span, step, -1)
	if err != nil {
		return dashboard.History{}, err
	}

	var out dashboard.History
	for i := range minutes {
		out.Steps = append(out.Steps, newStep(&minutes[i]))
	}

	sum := history.Sum(minutes)
	out.Sum, out.CompleteUntil = newStep(&sum), s.history.CompleteUntil()
	out.Refusals, out.Senders = history.DescribeRefusals(&sum), history.DescribeSenders(&sum)

	return out, nil
}

// Uncounted implements dashboard.Source.
func (s *pageSource) Uncounted(ctx context.Context, lane int, from,
	to time.Time) (wire.Uncounted, error) {
	return pastOf{s.history}.Uncounted(ctx, lane, from, to)
}

func newStep(m *history.Minute) dashboard.Step {
	t := m.Total()
	return dashboard.Step{At: m.At, Accepted: t.Accepted, Delivered: t.Delivered, Dead: t.Dead,
		Superseded: t.Superseded, Waiting: t.Waiting,
		Oldest: t.Oldest, Attempts: m.Attempts, AttemptP50: m.Attempt.Quantile(0.5),
		AttemptP95: m.Attempt.Quantile(0.95), AttemptP99: m.Attempt.Quantile(0.99),
		LagP50: m.Lag.Quantile(0.5), LagP95: m.Lag.Quantile(0.95), Transactions: m.Transactions,
		AnsweredAt: m.AnsweredAt, FailedAt: m.FailedAt,
		Throttled: m.Throttled, Refused: m.AllRefused(), Poisoned: m.Poisoned}
}

// Search implements dashboard.Source.
func (s *pageSource) Search(ctx context.Context, q dashboard.Query) (wire.MessageList, error) {
	if q.Lane >= s.store.Lanes {
		return wire.MessageList{}, nil
	}

	asked, err := query.ParseSearch(queryParameters(q), s.store.Lanes)
	if err != nil {
		return wire.MessageList{}, err
	}

	found, err := s.overview.Search(ctx, asked.Filter, asked.Limit, asked.Continue)
	if err != nil {
		return wire.MessageList{}, err
	}

	asked.Order.Sort(found.Messages)

	return overview.DescribeMessages(found), nil
}

// queryParameters returns a search of the page as query parameters of the API.
func queryParameters(q dashboard.Query) url.Values {
	values := url.Values{}
	for name, text := range q.Filters {
		values.Set(name, text)
	}

	for name, text := range map[string]string{"stage": q.Stage, "key": q.Key,
		"contract": q.Contract, "text": q.Text,
		"fingerprint": q.Fingerprint, "sort": q.Sort, "continue": q.Continue,
		"limit": strconv.Itoa(q.Limit)} {
		values.Set(name, text)
	}

	for name, at := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !at.IsZero() {
			values.Set(name, at.Format(time.RFC3339Nano))
		}
	}

	if q.Lane >= 0 {
		values.Set("lane", strconv.Itoa(q.Lane))
	}

	return values
}

// Message implements dashboard.Source. If the forecast cannot be read, the result has no forecast.
func (s *pageSource) Message(ctx context.Context, id weir.ID) (wire.MessageLine, error) {
	st, err := s.store.Messages().Status(ctx, id)
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

// Body implements dashboard.Source.
func (s *pageSource) Body(ctx context.Context, id weir.ID, isEdited bool) (dashboard.Body, error) {
	load := s.store.Messages().LoadMessage
	if isEdited {
		load = s.store.Messages().LoadEditedMessage
	}

	m, err := load(ctx, id)
	if err != nil {
		return dashboard.Body{}, err
	}

	isRedacted, err := s.bodies.HideValues(ctx, &m)
	if err != nil {
		return dashboard.Body{}, err
	}

	text, err := contract.Text(m.ContentType, m.Body)
	if err != nil { // Weir accepted the message under earlier rules for encodings
		text = strings.ToValidUTF8(string(m.Body), "\uFFFD")
	}

	return dashboard.Body{Text: strings.TrimLeft(text, " "), IsRedacted: isRedacted}, nil
}

// ReplayObstacle implements dashboard.Source.
func (s *pageSource) ReplayObstacle(ctx context.Context, id weir.ID) (string, error) {
	st, err := s.store.Messages().Status(ctx, id)
	if err != nil {
		return "", err
	}

	at := st.Message.ID // the message's id in the present epoch
	e, err := s.store.ReadMessage(ctx, at.Lane, at.Seq)
	if storage.Is(err, storage.NotFound) {
		return "", nil // retention has just removed the message
	}
	if err != nil {
		return "", err
	}

	return s.store.ReplayObstacle(ctx, e)
}

// Difference implements dashboard.Source.
func (s *pageSource) Difference(ctx context.Context, id weir.ID) (string, error) {
	return difference.Compare(ctx, s.turns, s.bodies, id)
}

// trialCopies is the memory of a trial, divided by the size of the body: the body, its values, the
// requests that repeat them, and their texts on the page.
const trialCopies = 16

// Try implements dashboard.Source. The trial starts from the redacted body. It would not be enough
// to redact the results: a step can change a value, and Weir does not find a changed value in the
// results.
func (s *pageSource) Try(ctx context.Context, id weir.ID, isEdited bool) (trial.Trial, error) {
	st, err := s.store.Messages().Status(ctx, id)
	if err != nil {
		return trial.Trial{}, err
	}

	runner := s.newTrialRunner(false, nil, nil)

	// the trial needs no body, and the body may not be readable
	if !runner.HasContract(st.Message.Contract) {
		return runner.RunTrial(ctx, weir.Delivery{Message: &st.Message}, trial.Answers{}), nil
	}

	size := int64(st.Message.Size)
	if isEdited {
		// the size of the edited body is known only when it is read
		size = int64(s.settings.MaxBody)
	}

	done, err := s.turns.Take(ctx, trialCopies*size)
	defer done()
	if err != nil {
		return trial.Trial{}, err
	}

	load := s.bodies.LoadMessage
	if isEdited {
		load = s.bodies.LoadEditedMessage
	}

	m, err := load(ctx, id)
	if err != nil {
		return trial.Trial{}, err
	}

	e := lane.Entry{}
	e.Message = m
	remembered, err := s.store.DeliveryState().ReadRememberedFor(ctx, m.ID.Lane, &e)
	if err != nil {
		return trial.Trial{}, err
	}

	return runner.RunTrial(ctx,
		weir.Delivery{Message: &m, Attempt: st.AttemptCount + 1, RememberedID: remembered.ID},
		trial.Answers{}), nil
}

// Errors implements dashboard.Source.
func (s *pageSource) Errors(ctx context.Context) (wire.ErrorList, error) {
	const limit = 200
	all, err := s.overview.Clusters(ctx, limit)
	if err != nil {
		return wire.ErrorList{}, err
	}
	return overview.DescribeErrors(all), nil
}

// Replays implements dashboard.Source.
func (s *pageSource) Replays(ctx context.Context) ([]wire.Job, error) { return s.replays.List(ctx) }

// Replay implements dashboard.Source.
func (s *pageSource) Replay(ctx context.Context, id string) (wire.Job, error) {
	return s.replays.Get(ctx, id)
}

// Schedules implements dashboard.Source.
func (s *pageSource) Schedules(ctx context.Context) ([]dashboard.Schedule, error) {
	all, err := s.schedules.List(ctx)
	if err != nil {
		return nil, err
	}

	var out []dashboard.Schedule
	for i := range all {
		out = append(out, newPageSchedule(&all[i]))
	}

	return out, nil
}

func newPageSchedule(s *recur.Schedule) dashboard.Schedule {
	return dashboard.Schedule{Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Paused: s.Paused,
		NextAt: s.NextAt, LastDueAt: s.Last.DueAt, LastID: s.Last.MessageID, Refusal: s.Refusal}
}

// The limits of a schedule's page.
const (
	pageRuns        = 10       // number of next runs
	pageMessageSize = 16 << 10 // bytes of the schedule's message
)

// Schedule implements dashboard.Source.
func (s *pageSource) Schedule(ctx context.Context, name string) (dashboard.ScheduleDetail, error) {
	if err := recur.CheckName(name); err != nil {
		return dashboard.ScheduleDetail{}, err
	}

	found, err := s.schedules.Get(ctx, name)
	if err != nil {
		return dashboard.ScheduleDetail{}, err
	}

	done, err := s.turns.Take(ctx, int64(s.settings.MaxBody))
	defer done()
	if err != nil {
		return dashboard.ScheduleDetail{}, err
	}

	preview, err := s.schedules.Preview(ctx, name, pageRuns)
	if err != nil {
		return dashboard.ScheduleDetail{}, err
	}

	message := redact.HideTemplate(ctx, s.contracts, found.ContentType, found.Message)
	out := dashboard.ScheduleDetail{Schedule: newPageSchedule(&found), Start: found.Start,
		End: found.End,
		Message: strings.ToValidUTF8(string(message[:min(len(message), pageMessageSize)]),
			"\uFFFD"),
		Filed: found.Filed, Skipped: found.Skipped, MissedRuns: found.State.Missed,
		Refused: found.Refused}

	if len(message) > pageMessageSize {
		out.Message += "\n…"
	}

	if reason := found.Unread(); reason != "" {
		out.Message = reason
	} else if message == nil {
		out.Message = "The message is not shown, because the values that its contract redacts cannot be found in it."
	}

	const localTime = "2006-01-02 15:04:05"
	for _, run := range preview.Runs {
		out.Runs = append(
			out.Runs,
			dashboard.ScheduledRun{DueAt: run.DueAt,
				Local: run.Local.Format(localTime + " -07:00")},
		)
	}

	for _, c := range preview.Skipped {
		out.ClockChanges = append(out.ClockChanges, c.Local.Format(localTime)+
			" does not exist, because clocks are set forward: there is no run.")
	}

	for _, c := range preview.Doubled {
		text := " occurs twice, because clocks are set back: it runs the first time."
		if c.Runs > 1 {
			text = " occurs twice, because clocks are set back: it runs both times."
		}
		out.ClockChanges = append(out.ClockChanges, c.Local.Format(localTime)+text)
	}

	return out, nil
}

// pageScheduled is the largest number of scheduled messages on a page.
const pageScheduled = 50

// Scheduled implements dashboard.Source.
func (s *pageSource) Scheduled(ctx context.Context, token string) (wire.MessageList, error) {
	found, err := s.overview.Scheduled(ctx, overview.DueFilter{}, pageScheduled, token)
	return overview.DescribeMessages(found), err
}

// pageChanges is the largest number of entries on a page of the audit log.
const pageChanges = 100

// Changes implements dashboard.Source.
func (s *pageSource) Changes(ctx context.Context,
	q dashboard.ChangeQuery) (dashboard.ChangeList, error) {
	page, err := s.audit.Read(ctx,
		audit.Query{Subject: q.Subject, Since: q.Since, Limit: pageChanges, Continue: q.Continue})
	out := dashboard.ChangeList{Continue: page.Continue}
	for _, e := range page.Entries {
		out.Changes = append(out.Changes,
			dashboard.Change{At: e.At, Action: e.Action, Subject: e.Subject, Detail: e.Detail,
				Function: e.Function, Principal: e.Principal, KeyID: e.KeyID, From: e.From,
				Call:   e.Invocation,
				Status: e.Status, RedactedBy: strings.Fields(e.RedactedBy)})
	}

	return out, err
}

// Batches implements dashboard.Source.
func (s *pageSource) Batches(ctx context.Context) ([]wire.Batch, error) {
	return s.batches.List(ctx)
}

// Batch implements dashboard.Source.
func (s *pageSource) Batch(ctx context.Context, id string) (wire.Batch, error) {
	return s.batches.GetProgress(ctx, id)
}

// BatchStages implements dashboard.Source.
func (s *pageSource) BatchStages(ctx context.Context, id string) (map[weir.Stage]int, error) {
	return s.batches.GetStages(ctx, id)
}
