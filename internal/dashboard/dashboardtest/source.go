// Package dashboardtest has made-up data for tests of the operator's page: a new installation, a
// bad day, and a source that cannot be read.
package dashboardtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"weir/internal/dashboard"
	"weir/internal/weir"
	"weir/internal/wire"
)

// TitleError is the fingerprint of most dead messages.
var TitleError, _ = weir.Fingerprint("article", 422, "Field title: at most 200 characters, 231 were sent")

// Noon is when the source's clock starts.
var Noon = time.Date(2026, 11, 20, 12, 0, 7, 250e6, time.UTC)

// MessageID returns the id of the nth message.
func MessageID(n int) string {
	return weir.ID{Epoch: 1, Lane: n % 4, Seq: int64(n), Nonce: fmt.Sprintf("%020x", 0x1f3a55+n*7919)}.String()
}

// Data is everything that the pages show.
type Data struct {
	Report    wire.LaneList
	History   dashboard.History
	Clusters  wire.ErrorList
	Jobs      []wire.Job
	Schedules []dashboard.Schedule
	Messages  []wire.MessageLine
	Changes   []dashboard.Change
	Bodies    map[string]string // by message id
	Edits     map[string]string // differences, by message id
}

// Source serves made-up data to a dashboard, by a clock that the test moves.
type Source struct {
	Data Data

	mu        sync.Mutex
	sinceNoon time.Duration
	err       error // of each read; nil = reads succeed
}

// Dashboard returns the pages of the source.
func (f *Source) Dashboard() *dashboard.Dashboard {
	return dashboard.New(dashboard.Config{
		Lanes: f, Past: f, Messages: f, Errors: f, Replays: f, Schedules: f, Changes: f, Contracts: []string{"article", "delete"},
		Now: f.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// Change changes the data while pages may be reading it, and moves the clock by five seconds, so
// that no page shows the old data from its cache.
func (f *Source) Change(change func(*Data)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinceNoon += 5 * time.Second
	change(&f.Data)
}

// PassTime moves the clock.
func (f *Source) PassTime(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinceNoon += d
}

// Now returns the source's time.
func (f *Source) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Noon.Add(f.sinceNoon)
}

// readData returns a copy of a part of the data, or the source's error.
func readData[T any](f *Source, part *T) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *part, f.err
}

// Lanes implements dashboard.Lanes.
func (f *Source) Lanes(context.Context) (wire.LaneList, error) {
	report, err := readData(f, &f.Data.Report)
	t := &report.Totals
	for _, l := range report.Lanes {
		t.Accepted += l.Accepted
		t.Delivered += l.Delivered
		t.Dead += l.Dead
		t.Cancelled += l.Cancelled
		t.Superseded += l.Superseded
		t.Moved += l.Moved
		t.Waiting += l.Waiting
	}
	return report, err
}

// Past implements dashboard.Past.
func (f *Source) Past(context.Context, time.Duration, time.Duration) (dashboard.History, error) {
	return readData(f, &f.Data.History)
}

// Errors implements dashboard.Errors.
func (f *Source) Errors(context.Context) (wire.ErrorList, error) {
	return readData(f, &f.Data.Clusters)
}

// Replays implements dashboard.Replays.
func (f *Source) Replays(context.Context) ([]wire.Job, error) { return readData(f, &f.Data.Jobs) }

// Schedules implements dashboard.Schedules.
func (f *Source) Schedules(context.Context) ([]dashboard.Schedule, error) {
	return readData(f, &f.Data.Schedules)
}

// Changes implements dashboard.Changes.
func (f *Source) Changes(context.Context, string) (dashboard.ChangeList, error) {
	changes, err := readData(f, &f.Data.Changes)
	return dashboard.ChangeList{Changes: changes, Continue: strings.Repeat("more", min(1, len(changes)))}, err
}

// Replay implements dashboard.Replays.
func (f *Source) Replay(_ context.Context, id string) (wire.Job, error) {
	for _, j := range f.Data.Jobs {
		if j.ID == id {
			return j, f.err
		}
	}
	return wire.Job{}, &weir.Error{Kind: weir.NotFound, Message: "there is no such replay"}
}

// Search implements dashboard.Messages.
func (f *Source) Search(_ context.Context, q dashboard.Query) (wire.MessageList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := wire.MessageList{Looked: len(f.Data.Messages)}
	for _, m := range f.Data.Messages {
		fingerprint, _ := weir.Fingerprint(m.Contract, m.CMSStatus, m.LastError)
		if (q.Fingerprint == "" || q.Fingerprint == fingerprint) && (q.Stage == "" || string(m.Stage) == q.Stage) &&
			(q.Key == "" || m.Key == q.Key) && (q.Lane < 0 || m.Lane == q.Lane) &&
			strings.Contains(m.Key+m.LastError, q.Text) {
			found.Messages = append(found.Messages, m)
		}
	}
	if len(found.Messages) > 10 {
		found.Continue = "further"
	}
	return found, f.err
}

// Message implements dashboard.Messages.
func (f *Source) Message(_ context.Context, id weir.ID) (wire.MessageLine, error) {
	messages, err := readData(f, &f.Data.Messages)
	for _, m := range messages {
		if m.ID == id.String() {
			return m, err
		}
	}
	return wire.MessageLine{}, &weir.Error{Kind: weir.NotFound, Message: "there is no message with this id"}
}

// Body implements dashboard.Messages.
func (f *Source) Body(_ context.Context, id weir.ID, _ bool) (string, error) {
	if body, ok := f.Data.Bodies[id.String()]; ok {
		return body, f.err
	}
	return `<?xml version="1.0"?><article path="/news/1" version="3"><title>A title</title></article>`, f.err
}

// Difference implements dashboard.Messages.
func (f *Source) Difference(_ context.Context, id weir.ID) (string, error) {
	return f.Data.Edits[id.String()], f.err
}

// NewBroken returns a source whose reads all fail.
func NewBroken() *Source { return &Source{err: errors.New("storage is away")} }

// NewEmpty returns a system that was just installed.
func NewEmpty() *Source {
	f := &Source{Data: Data{Clusters: wire.ErrorList{Complete: true}}}
	for n := range 2 {
		f.Data.Report.Lanes = append(f.Data.Report.Lanes, wire.Lane{Number: n, Exact: true})
	}
	for i := range 60 {
		f.Data.History.Steps = append(f.Data.History.Steps,
			dashboard.Step{At: Noon.Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute)})
	}
	return f
}

// NewBusy returns a system on a bad day: a burst an hour ago, errors, pauses, a replay.
func NewBusy() *Source {
	f := &Source{Data: Data{Bodies: map[string]string{}, Edits: map[string]string{}}}
	f.Data.Report = wire.LaneList{Lanes: busyLanes(),
		Calendar: wire.Calendar{NextChange: Noon.Add(10 * time.Hour)}}
	f.Data.History = busyHistory()
	f.Data.Changes = busyChanges()
	f.Data.Clusters = wire.ErrorList{Looked: 431, Complete: true, Errors: []wire.ErrorCause{
		{Fingerprint: TitleError, Contract: "article", CMSStatus: 422,
			Message: "Field title: at most N characters, N were sent", Count: 387, Keys: 301,
			FirstAt: Noon.Add(-26 * time.Hour), LastAt: Noon.Add(-3 * time.Minute), Sample: wire.ErrorSample{ID: MessageID(1), Key: "/news/politics/1",
				Reason: "Field title: at most 200 characters, 231 were sent"}},
		{Fingerprint: "91b0aa37c0de", Contract: "article", CMSStatus: 500,
			Message: "upstream database timed out after N ms", Count: 41, Keys: 12,
			FirstAt: Noon.Add(-50 * time.Minute), LastAt: Noon.Add(-31 * time.Minute), Sample: wire.ErrorSample{ID: MessageID(2), Key: "/news/sport/14",
				Reason: "upstream database timed out after 10000 ms"}},
		{Fingerprint: "07cc51e9ab10", Contract: "delete", CMSStatus: 404, Message: "no such path", Count: 3, Keys: 3,
			FirstAt: Noon.Add(-9 * 24 * time.Hour), LastAt: Noon.Add(-2 * 24 * time.Hour), Sample: wire.ErrorSample{ID: MessageID(3), Key: "/archive/2019/<b>old</b>",
				Reason: "no such path"}}}}
	f.Data.Jobs = []wire.Job{
		{ID: "r1", State: "running", Reason: "title limit was raised to 300", Filter: wire.JobFilter{Fingerprint: TitleError},
			RatePerMinute: 120, StopAtErrorRate: 0.2,
			Matched: 387, Replayed: 142, Delivered: 118, DeadAgain: 2, Waiting: 22, Refused: 4,
			StartedAt: Noon.Add(-70 * time.Second), UpdatedAt: Noon.Add(-time.Second)},
		{ID: "r0", State: "stopped", Reason: "database is back", StopReason: "12 of 20 died again",
			Filter: wire.JobFilter{Contract: "article"}, RatePerMinute: 60, StopAtErrorRate: 0.5,
			Matched: 53, Replayed: 20, Delivered: 8, DeadAgain: 12, StartedAt: Noon.Add(-45 * time.Minute),
			UpdatedAt: Noon.Add(-44 * time.Minute), FinishedAt: Noon.Add(-44 * time.Minute)}}
	f.Data.Schedules = []dashboard.Schedule{
		{Name: "front-page", Cron: "*/15 * * * *", TimeZone: "Europe/Berlin",
			NextAt: Noon.Add(15 * time.Minute).Truncate(15 * time.Minute), LastDueAt: Noon.Truncate(15 * time.Minute),
			LastID: MessageID(5)},
		{Name: "nightly-report", Cron: "30 2 * * *", TimeZone: "Europe/Berlin",
			NextAt: Noon.Add(13*time.Hour + 30*time.Minute), LastDueAt: Noon.Add(-11 * time.Hour), LastID: MessageID(6)},
		{Name: "archive", Cron: "@monthly", TimeZone: "UTC", Paused: true}}
	for n := 1; n <= 24; n++ {
		f.Data.Messages = append(f.Data.Messages, BusyMessage(n))
	}
	edited := BusyMessage(40)
	edited.Stage, edited.Edited.At, edited.Edited.Note, edited.Replays = weir.Delivered, Noon.Add(-4*time.Minute),
		"title shortened by the desk", 1
	edited.AttemptLog = append(failedAttempts(edited.AcceptedAt),
		wire.Attempt{Number: 5, At: Noon.Add(-3*time.Minute - 59*time.Second), Duration: wire.Milliseconds(61 * time.Millisecond),
			Outcome: weir.OutcomeDelivered, Status: 200})
	edited.FinishedAt, edited.AttemptCount = Noon.Add(-3*time.Minute-58*time.Second), 5
	f.Data.Messages = append(f.Data.Messages, edited)
	f.Data.Bodies[edited.ID] = longTitle
	f.Data.Edits[edited.ID] = "--- accepted\n+++ edited\n@@ -1,4 +1,4 @@\n" +
		" <article path=\"/news/politics/40\" version=\"40\">\n-  <title>" + strings.Repeat("A very long title ", 12) +
		"</title>\n+  <title>A short title</title>\n   <author>desk</author>\n"
	f.Data.Bodies[MessageID(1)] = longTitle
	return f
}

const longTitle = `<?xml version="1.0" encoding="UTF-8"?>` +
	`<article path="/news/politics/1" version="41" xmlns:m="urn:meta"><!-- from the desk -->` +
	`<title>Coalition agrees on the budget &amp; the road map after a night of talks</title>` +
	`<author><name>Ada Bell</name><desk>politics</desk></author>` +
	`<body><p>The parties <em>agreed</em> late on Thursday.</p><p>Details follow.</p></body>` +
	`<m:raw><![CDATA[a < b && c > d]]></m:raw><tags><tag>budget</tag><tag>coalition</tag></tags></article>`

func busyLanes() []wire.Lane {
	lanes := make([]wire.Lane, 6)
	for n := range lanes {
		waiting := int64(n*n*37 + n)
		lanes[n] = wire.Lane{Number: n, Exact: true, Held: n < 4, Holder: fmt.Sprintf("weir-7f9c%d-1%d", n, 20+n),
			Fence: int64(41 + 3*n), Rate1: pointerTo(212 - float64(n*31)), Rate15: pointerTo(180 - float64(n*25)),
			Counts: wire.Counts{Delivered: 184_220 - int64(n*9_131), Dead: int64(n * 43), Superseded: 1_204,
				Cancelled: 12, Waiting: waiting},
			Scheduled: waiting / 5, Retrying: waiting / 9, Queued: waiting - waiting/5 - waiting/9}
		l := &lanes[n]
		l.Accepted = l.Delivered + l.Dead + l.Superseded + l.Cancelled + l.Waiting
		if waiting > 0 {
			l.OldestAt, l.EmptyIn = Noon.Add(-time.Duration(n*n*21)*time.Second), pointerTo(float64(n*n*14))
		}
	}
	lanes[2].LastError, lanes[2].LastErrorAt = "upstream database timed out after 10000 ms", Noon.Add(-31*time.Second)
	lanes[3].Exact = false
	lanes[3].PausedBy, lanes[3].PausedUntil, lanes[3].PauseReason = "cms", Noon.Add(24*time.Second),
		"503 Service Unavailable: deploying, back in a minute"
	lanes[4].PausedBy, lanes[4].PauseReason, lanes[4].EmptyIn, lanes[4].Held = "operator",
		"reindexing the archive, ask Kim", nil, false
	lanes[4].Pauses = []wire.Pause{{Lane: 4, Reason: "reindexing the archive, ask Kim",
		Since: Noon.Add(-40 * time.Minute)}}
	lanes[1].Pauses = []wire.Pause{{Lane: 1, Key: "/news/politics/1", Reason: "legal is looking at it",
		Since: Noon.Add(-2 * time.Hour), Until: Noon.Add(time.Hour)}}
	lanes[5].NextDueAt = Noon.Add(95 * time.Second)
	return lanes
}

func pointerTo(n float64) *float64 { return &n }

func busyHistory() dashboard.History {
	var h dashboard.History
	transactions := map[string]int64{}
	for i := range 60 {
		wave := 1 + 0.35*math.Sin(float64(i)/5) + 0.15*math.Sin(float64(i)*1.7)
		accepted := int64(620 * wave)
		if i > 22 && i < 30 {
			accepted *= 3
		}
		delivered := min(accepted, int64(900+60*math.Sin(float64(i))))
		slow := 1.0
		if i > 33 && i < 40 {
			delivered, slow = int64(120+10*i%40), 22
		}
		s := dashboard.Step{At: Noon.Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute), Accepted: accepted,
			Delivered: delivered, Dead: int64(i % 7),
			AttemptP50: milliseconds(38 * wave * slow), AttemptP95: milliseconds(120 * wave * slow),
			AttemptP99: milliseconds(410 * wave * slow),
			LagP50:     milliseconds(70 * wave * slow), LagP95: milliseconds(900 * wave * slow),
			Waiting: int64(300 + 400*math.Abs(math.Sin(float64(i)/9))*slow/3), Oldest: milliseconds(8000 * slow)}
		h.Steps = append(h.Steps, s)
		h.Sum.Accepted += s.Accepted
		h.Sum.Delivered += s.Delivered
		h.Sum.Dead += s.Dead
	}
	transactions["table transact"], transactions["table query"], transactions["queue put"], transactions["queue get"],
		transactions["blob lease-renew"], transactions["blob put"] = 9_412, 3_120, 411, 388, 720, 12
	h.Sum.Transactions = transactions
	h.Sum.Attempts = map[weir.Outcome]int64{weir.OutcomeDelivered: h.Sum.Delivered, weir.OutcomeRetry: 812,
		weir.OutcomeRejected: 43, weir.OutcomeUnavailable: 61}
	h.Sum.AttemptP50, h.Sum.AttemptP95, h.Sum.AttemptP99 = milliseconds(41), milliseconds(188), milliseconds(920)
	h.Sum.LagP50, h.Sum.LagP95 = milliseconds(84), milliseconds(3100)
	return h
}

func milliseconds(n float64) time.Duration { return time.Duration(n * 1e6) }

// BusyMessage returns the nth message of NewBusy: delivered if n is even, else dead or waiting for a
// retry.
func BusyMessage(n int) wire.MessageLine {
	m := wire.MessageLine{Size: 812, Message: wire.Message{ID: MessageID(n), Contract: "article", Key: fmt.Sprintf("/news/politics/%d", n),
		Version: fmt.Sprint(n + 40), Lane: n % 4, Sequence: int64(4000 + n),
		AcceptedAt: Noon.Add(-time.Duration(n) * 47 * time.Second), AttemptCount: 1}}
	at := m.AcceptedAt.Add(140 * time.Millisecond)
	switch n % 4 {
	case 0, 2:
		m.Stage, m.FinishedAt, m.CMSStatus = weir.Delivered, at.Add(60*time.Millisecond), 200
		m.AttemptLog = []wire.Attempt{{Number: 1, At: at, Duration: wire.Milliseconds(58 * time.Millisecond), Outcome: weir.OutcomeDelivered,
			Status: 200}}
	case 1:
		m.Stage, m.CMSStatus, m.LastError = weir.Dead, 422, "Field title: at most 200 characters, 231 were sent"
		m.AcceptedAt = Noon.Add(-40 * time.Minute)
		m.AttemptLog = failedAttempts(m.AcceptedAt)
		m.AttemptCount, m.FinishedAt = 4, m.AttemptLog[3].At.Add(80*time.Millisecond)
	case 3:
		m.Stage, m.NextAttemptAt, m.CMSStatus, m.LastError = weir.Retrying, Noon.Add(12*time.Second), 500,
			"upstream database timed out after 10000 ms"
		m.AttemptLog = []wire.Attempt{{Number: 1, At: at, Duration: wire.Milliseconds(10 * time.Second), Outcome: weir.OutcomeRetry,
			Status: 500, Reason: m.LastError}}
		m.Position, m.WaitsFor, m.ExpectedAt = 2, "behind "+MessageID(n+4)+" of its key, which is retried at 12:00:19",
			Noon.Add(14*time.Second)
	}
	return m
}

func failedAttempts(accepted time.Time) []wire.Attempt {
	at := accepted.Add(120 * time.Millisecond)
	return []wire.Attempt{
		{Number: 1, At: at, Duration: wire.Milliseconds(10 * time.Second), Outcome: weir.OutcomeRetry, Status: 500,
			Reason: "upstream database timed out after 10000 ms",
			Answer: `{"error":"upstream database timed out after 10000 ms"}`},
		{Number: 2, At: at.Add(14 * time.Second), Duration: wire.Milliseconds(30 * time.Second), Outcome: weir.OutcomeRetry,
			Reason: "no answer within 30s"},
		{Number: 3, At: at.Add(80 * time.Second), Duration: wire.Milliseconds(2 * time.Millisecond), Outcome: weir.OutcomeUnavailable,
			Reason: "dial tcp 10.1.4.7:443: connection refused"},
		{Number: 4, At: at.Add(21 * time.Minute), Duration: wire.Milliseconds(64 * time.Millisecond), Outcome: weir.OutcomeRejected,
			Status: 422, Reason: "Field title: at most 200 characters, 231 were sent",
			Answer: `{"code":"title.length","max":200,"sent":231}`},
	}
}

// Pages are the paths of all pages, by name, with the data of NewBusy.
func Pages() map[string]string {
	return map[string]string{
		"overview": "", "search": "/messages", "story": "/messages/" + MessageID(1),
		"waiting": "/messages/" + MessageID(3), "edited": "/messages/" + MessageID(40),
		"errors": "/errors", "cluster": "/errors/" + TitleError, "replays": "/replays", "job": "/replays/r1",
		"pauses": "/pauses", "audit": "/audit", "missing": "/nowhere",
	}
}

// busyChanges returns the audit log of a bad day.
func busyChanges() []dashboard.Change {
	return []dashboard.Change{
		{At: Noon.Add(-2 * time.Minute), Action: "pause", Detail: `{"all":true,"for":"2h","reason":"the CMS is being upgraded"}`,
			Function: "write", Principal: "ada@example.org", KeyID: "3fa9c2d1", From: "198.51.100.7:51234", Status: 200},
		{At: Noon.Add(-9 * time.Minute), Action: "edit", Subject: MessageID(40), Detail: `{"bodyBytes":312,"note":"title shortened"}`,
			Function: "write", KeyID: "3fa9c2d1", From: "198.51.100.7:51234", Status: 202},
		{At: Noon.Add(-time.Hour), Action: "schedule.put", Subject: "nightly",
			Detail:   `{"cron":"30 2 * * *","messageBytes":97,"timeZone":"Europe/Berlin"}`,
			Function: "schedules", KeyID: "77e0aa15", From: "203.0.113.4, 198.51.100.200:443", Status: 201},
		{At: Noon.Add(-3 * time.Hour), Action: "cancel", Subject: MessageID(7), Function: "cancel", KeyID: "c01df00d",
			From: "203.0.113.9:40112", Status: 503},
		{At: Noon.Add(-49 * time.Hour), Action: "lanes.change", Detail: `{"lanes":4}`, Function: "command", Principal: "root",
			From: "ops-1"},
	}
}
