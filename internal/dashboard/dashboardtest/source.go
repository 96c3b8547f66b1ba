// Package dashboardtest has made-up data for tests of the operator's page. Examples are a system
// that was just installed, a system with many errors, and a source that cannot be read.
package dashboardtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/contract"
	"weir/internal/dashboard"
	"weir/internal/trial"
	"weir/internal/weir"
	"weir/internal/wire"
)

// TitleError is the fingerprint of the most frequent error in the data of NewBusy; see
// weir.Fingerprint.
var TitleError, _ = weir.Fingerprint("article", 422,
	"Field title: at most 200 characters, 231 were sent")

// Noon is the time at which the clock of each Source starts.
var Noon = time.Date(2026, 11, 20, 12, 0, 7, 250e6, time.UTC)

// WholeUntil is the end of the last minute whose counters are complete at Noon.
var WholeUntil = Noon.Truncate(time.Minute).Add(-2 * time.Minute)

// MessageID returns the id of the message with the number n.
func MessageID(n int) string {
	return weir.ID{Epoch: 1, Lane: n % 4, Seq: int64(n), Nonce: fmt.Sprintf("%020x", 0x1f3a55+n*7919)}.String()
}

// Data has everything that the pages show.
type Data struct {
	Report    wire.LaneList
	History   dashboard.History
	Clusters  wire.ErrorList
	Jobs      []wire.Job
	Batches   []wire.Batch // batches with their problems and stages
	Schedules []dashboard.Schedule
	Scheduled []wire.MessageLine
	Messages  []wire.MessageLine
	Changes   []dashboard.Change
	Uncounted wire.Uncounted         // of each lane
	Bodies    map[string]string      // by message id
	Edits     map[string]string      // unified diffs, by message id
	Trials    map[string]trial.Trial // by message id
	Obstacles map[string]string      // reasons why a replay needs force, by message id
}

// Source serves made-up data to a dashboard. Its clock moves only by Change and PassTime.
type Source struct {
	Data Data

	mu        sync.Mutex
	sinceNoon time.Duration
	err       error // the error of each read; nil = reads succeed
}

// Dashboard returns a dashboard that reads from the Source.
func (f *Source) Dashboard() *dashboard.Dashboard {
	return dashboard.New(dashboard.Config{
		Source:    f,
		Reads:     f,
		Contracts: []string{"article", "delete"},
		Now:       f.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// Take implements dashboard.Reads.
func (f *Source) Take(context.Context) (done func(), err error) { return func() {}, nil }

// Change changes the data, and moves the clock forward by five seconds. So pages show the new data,
// except data that the dashboard caches for longer, such as schedules.
func (f *Source) Change(change func(*Data)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinceNoon += 5 * time.Second
	change(&f.Data)
}

// PassTime moves the clock forward by d.
func (f *Source) PassTime(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinceNoon += d
}

// Now returns the time of the Source's clock.
func (f *Source) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Noon.Add(f.sinceNoon)
}

// readData returns a copy of part, and the error of the Source.
func readData[T any](f *Source, part *T) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *part, f.err
}

// Lanes implements dashboard.Source.
func (f *Source) Lanes(context.Context) (wire.LaneList, error) {
	report, err := readData(f, &f.Data.Report)
	t := &report.Totals
	for _, l := range report.Lanes {
		t.Accepted += l.Accepted
		t.Delivered += l.Delivered
		t.Dead += l.Dead
		t.Cancelled += l.Cancelled
		t.Superseded += l.Superseded
		t.Discarded += l.Discarded
		t.Moved += l.Moved
		t.Waiting += l.Waiting
	}

	return report, err
}

// Uncounted implements dashboard.Source.
func (f *Source) Uncounted(context.Context, int, time.Time, time.Time) (wire.Uncounted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Data.Uncounted, f.err
}

// Past implements dashboard.Source.
func (f *Source) Past(context.Context, time.Duration, time.Duration) (dashboard.History, error) {
	return readData(f, &f.Data.History)
}

// Errors implements dashboard.Source.
func (f *Source) Errors(context.Context) (wire.ErrorList, error) {
	return readData(f, &f.Data.Clusters)
}

// Replays implements dashboard.Source.
func (f *Source) Replays(context.Context) ([]wire.Job, error) { return readData(f, &f.Data.Jobs) }

// Schedules implements dashboard.Source.
func (f *Source) Schedules(context.Context) ([]dashboard.Schedule, error) {
	return readData(f, &f.Data.Schedules)
}

// Schedule implements dashboard.Source.
func (f *Source) Schedule(_ context.Context, name string) (dashboard.ScheduleDetail, error) {
	all, err := readData(f, &f.Data.Schedules)
	for _, s := range all {
		if s.Name == name {
			return dashboard.ScheduleDetail{Schedule: s,
				Message: `<article path="/daily" version="{{.Run}}"/>`, Filed: 12,
				Runs: []dashboard.ScheduledRun{{DueAt: Noon.Add(14 * time.Hour),
					Local: "2026-11-21 03:00:07 +01:00"}},
				ClockChanges: []string{
					"2027-03-28 02:30:00 does not exist, because clocks are set forward: there is no run."},
			}, err
		}
	}

	return dashboard.ScheduleDetail{},
		&weir.Error{Kind: weir.NotFound, Message: "there is no schedule of this name"}
}

// Scheduled implements dashboard.Source.
func (f *Source) Scheduled(context.Context, string) (wire.MessageList, error) {
	all, err := readData(f, &f.Data.Scheduled)
	return wire.MessageList{Messages: all, Looked: len(all), Complete: true}, err
}

// Changes implements dashboard.Source.
func (f *Source) Changes(_ context.Context, q dashboard.ChangeQuery) (dashboard.ChangeList, error) {
	changes, err := readData(f, &f.Data.Changes)
	changes = slices.DeleteFunc(slices.Clone(changes), func(c dashboard.Change) bool {
		return q.Subject != "" && c.Subject != q.Subject || c.At.Before(q.Since)
	})
	return dashboard.ChangeList{Changes: changes,
		Continue: strings.Repeat("more", min(1, len(changes)))}, err
}

// Batches implements dashboard.Source.
func (f *Source) Batches(context.Context) ([]wire.Batch, error) {
	return readData(f, &f.Data.Batches)
}

// Batch implements dashboard.Source.
func (f *Source) Batch(ctx context.Context, id string) (wire.Batch, error) {
	all, err := f.Batches(ctx)
	for _, b := range all {
		if b.ID == id {
			return b, err
		}
	}

	if err != nil {
		return wire.Batch{}, err
	}

	return wire.Batch{}, &weir.Error{Kind: weir.NotFound, Message: "there is no such batch"}
}

// BatchStages implements dashboard.Source.
func (f *Source) BatchStages(ctx context.Context, id string) (map[weir.Stage]int, error) {
	b, err := f.Batch(ctx, id)
	return b.Stages, err
}

// Replay implements dashboard.Source.
func (f *Source) Replay(_ context.Context, id string) (wire.Job, error) {
	for _, j := range f.Data.Jobs {
		if j.ID == id {
			return j, f.err
		}
	}
	return wire.Job{}, &weir.Error{Kind: weir.NotFound, Message: "there is no such replay"}
}

// Search implements dashboard.Source.
func (f *Source) Search(_ context.Context, q dashboard.Query) (wire.MessageList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := wire.MessageList{Looked: len(f.Data.Messages)}
	for _, m := range f.Data.Messages {
		fingerprint, _ := weir.Fingerprint(m.Contract, m.CMSStatus, m.LastError)
		if (q.Fingerprint == "" || q.Fingerprint == fingerprint) &&
			(q.Stage == "" || string(m.Stage) == q.Stage) &&
			(q.Key == "" || m.Key == q.Key) &&
			strings.HasPrefix(m.Key, q.Filters["keyPrefix"]) && (q.Lane < 0 || m.Lane == q.Lane) &&
			strings.Contains(m.Key+m.LastError, q.Text) {
			found.Messages = append(found.Messages, m)
		}
	}

	if len(found.Messages) > 10 {
		found.Continue = "further"
	}

	return found, f.err
}

// Message implements dashboard.Source.
func (f *Source) Message(_ context.Context, id weir.ID) (wire.MessageLine, error) {
	messages, err := readData(f, &f.Data.Messages)
	for _, m := range messages {
		if m.ID == id.String() {
			return m, err
		}
	}

	return wire.MessageLine{},
		&weir.Error{Kind: weir.NotFound, Message: "there is no message with this id"}
}

// Body implements dashboard.Source.
func (f *Source) Body(ctx context.Context, id weir.ID, _ bool) (dashboard.Body, error) {
	if m, err := f.Message(ctx, id); err == nil && !m.ErasedAt.IsZero() {
		return dashboard.Body{},
			&weir.Error{Kind: weir.NotFound, Message: "the body is not kept any more"}
	}

	if body, ok := f.Data.Bodies[id.String()]; ok {
		return dashboard.Body{Text: body,
			IsRedacted: strings.Contains(body, contract.RedactedMark)}, f.err
	}

	const text = `<?xml version="1.0"?><article path="/news/1" version="3"><title>A title</title></article>`
	return dashboard.Body{Text: text}, f.err
}

// ReplayObstacle implements dashboard.Source.
func (f *Source) ReplayObstacle(_ context.Context, id weir.ID) (string, error) {
	return f.Data.Obstacles[id.String()], f.err
}

// Difference implements dashboard.Source.
func (f *Source) Difference(_ context.Context, id weir.ID) (string, error) {
	return f.Data.Edits[id.String()], f.err
}

// Try implements dashboard.Source.
func (f *Source) Try(ctx context.Context, id weir.ID, isEdited bool) (trial.Trial, error) {
	if _, err := f.Body(ctx, id, isEdited); err != nil {
		return trial.Trial{}, err
	}

	if t, ok := f.Data.Trials[id.String()]; ok {
		return t, f.err
	}
	return NewTrial(), f.err
}

// NewTrial returns a trial of a chain with four steps:
//   - find is a look-up.
//   - create and update have conditions that need the answer to the request of the step find.
//   - notify has a condition that is false.
func NewTrial() trial.Trial {
	headers := []trial.Header{{Name: "Accept",
		Value: "application/json, application/xml;q=0.9, */*;q=0.8"},
		{Name: "Idempotency-Key", Value: "AQABL714SFvJDd7dAA/find"},
		{Name: "Weir-Attempt", Value: "2"},
		{Name: "Weir-Fence", Value: "0"}, {Name: "X-Token", Value: "…"}}

	const address = "https://cms.example/wp-json/wp/v2/posts"
	body := "{\n  \"slug\": \"news-1\",\n  \"status\": \"publish\",\n  \"title\": \"A title\"\n}"
	return trial.Trial{Contract: "article", Key: "/news/1", SignedIn: true, Verdict: trial.Open,
		Needs: "find", Steps: []trial.Step{
			{Name: "find", Request: &trial.Request{Method: "GET",
				Address: address + "?slug=news-1&status=any&context=edit", Headers: headers}},
			{Name: "create", Ahead: true, OnlyIf: "len(find.json) == 0",
				Request: &trial.Request{Method: "POST", Address: address, Headers: headers,
					Body: body}},
			{Name: "update", Ahead: true, OnlyIf: "len(find.json) == 1",
				Request: &trial.Request{Method: "PUT", Address: address + "/{{ find.json[0].id }}",
					Headers: headers, Body: body}},
			{Name: "notify", Ahead: true, LeftOut: "has('./urgent')"},
		}}
}

// Pages returns the paths of all pages below dashboard.Base, by name. The ids in the paths exist in
// the data of NewBusy.
func Pages() map[string]string {
	return map[string]string{
		"overview": "", "search": "/messages", "story": "/messages/" + MessageID(1),
		"waiting": "/messages/" + MessageID(3), "edited": "/messages/" + MessageID(40),
		"errors": "/errors", "cluster": "/errors/" + TitleError, "replays": "/replays",
		"job":     "/replays/r1",
		"batches": "/batches", "batch": "/batches/90523457719920123456789abcdef",
		"pauses": "/pauses", "schedules": "/schedules", "schedule": "/schedule?name=nightly-report",
		"audit": "/audit", "missing": "/nowhere",
	}
}
