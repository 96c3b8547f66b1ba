package dashboardtest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"weir/internal/dashboard"
	"weir/internal/weir"
	"weir/internal/wire"
)

// NewBroken returns a Source whose reads all fail.
func NewBroken() *Source { return &Source{err: errors.New("storage is away")} }

// NewEmpty returns the Source of a system that was just installed. It has two lanes and no
// messages.
func NewEmpty() *Source {
	f := &Source{Data: Data{Clusters: wire.ErrorList{Complete: true}}}
	for n := range 2 {
		f.Data.Report.Lanes = append(f.Data.Report.Lanes,
			wire.Lane{Number: n, Exact: true, RatesUntil: WholeUntil})
	}

	f.Data.History.CompleteUntil = WholeUntil
	for i := range 60 {
		f.Data.History.Steps = append(f.Data.History.Steps,
			dashboard.Step{At: Noon.Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute)})
	}

	return f
}

// NewDown returns the Source of a system whose CMS is down. The last delivery or rejection was two
// minutes ago. All lanes are paused because the CMS is down.
func NewDown() *Source {
	f := NewBusy()
	const reason = "503 Service Unavailable: the CMS is down"
	for n := range f.Data.Report.Lanes {
		l := &f.Data.Report.Lanes[n]
		l.FoundDown, l.LastError, l.LastErrorAt = true, reason,
			Noon.Add(-time.Duration(40+n)*time.Second)
		l.PausedBy, l.PauseReason, l.EmptyIn = "cms", reason, nil
		l.PausedUntil = Noon.Add(time.Duration(20+n) * time.Second)
	}

	f.Data.History.Sum.AnsweredAt, f.Data.History.Sum.FailedAt = Noon.Add(-2*time.Minute),
		Noon.Add(-40*time.Second)

	return f
}

// NewPaused returns the Source of a system whose CMS is down, as in NewDown. An operator has paused
// all lanes.
func NewPaused() *Source {
	f := NewDown()
	for n := range f.Data.Report.Lanes {
		l := &f.Data.Report.Lanes[n]
		l.PausedBy, l.PauseReason, l.PausedUntil = "operator", "the CMS is being upgraded",
			Noon.Add(2*time.Hour)
		l.Pauses = []wire.Pause{{Scope: "lane", Lane: n, Reason: l.PauseReason,
			Since: Noon.Add(-30 * time.Second), Until: l.PausedUntil}}
	}

	return f
}

// NewHeldUp returns the Source of a busy system whose lanes hold up the messages of two contracts:
// one is missing from the settings, and the CMS rejects the messages of the other. Their names are
// long.
func NewHeldUp() *Source {
	f := NewBusy()
	for n := range 2 {
		l := &f.Data.Report.Lanes[n]
		l.MissingContracts = []wire.MissingContract{{Contract: "news-of-the-northern-desk <b>",
			Messages: int64(n + 2), Keys: 1, Since: Noon}}
		l.Brakes = []wire.Brake{{Contract: "article", Fingerprint: "f1", CMSStatus: 422,
			Messages: int64(n + 2),
			Keys:     1, Reason: "<n> must have a teaser of at most <n> characters", Since: Noon}}
	}

	return f
}

// NewBusy returns the Source of a system with a burst half an hour ago, and with errors, pauses,
// bulk replays and batches.
func NewBusy() *Source {
	f := &Source{Data: Data{Bodies: map[string]string{}, Edits: map[string]string{}}}
	f.Data.Report = wire.LaneList{Lanes: busyLanes(),
		Calendar: wire.Calendar{NextChange: Noon.Add(10 * time.Hour)}}
	f.Data.History = busyHistory()
	f.Data.Changes = busyChanges()
	f.Data.Obstacles = map[string]string{
		MessageID(1): "a later message of its key was delivered: " + MessageID(40)}
	f.Data.Clusters = wire.ErrorList{Looked: 431, Complete: true, Errors: []wire.ErrorCause{
		{Fingerprint: TitleError, Contract: "article", CMSStatus: 422,
			Message: "Field title: at most N characters, N were sent", Count: 387, Keys: 301,
			FirstAt: Noon.Add(-26 * time.Hour), LastAt: Noon.Add(-3 * time.Minute),
			Sample: wire.ErrorSample{ID: MessageID(1), Key: "/news/politics/1",
				Reason: "Field title: at most 200 characters, 231 were sent"}},
		{Fingerprint: "91b0aa37c0de", Contract: "article", CMSStatus: 500,
			Message: "upstream database timed out after N ms", Count: 41, Keys: 12,
			FirstAt: Noon.Add(-50 * time.Minute), LastAt: Noon.Add(-31 * time.Minute),
			Sample: wire.ErrorSample{ID: MessageID(2), Key: "/news/sport/14",
				Reason: "upstream database timed out after 10000 ms"}},
		{Fingerprint: "07cc51e9ab10", Contract: "delete", CMSStatus: 404, Message: "no such path",
			Count: 3, Keys: 3,
			FirstAt: Noon.Add(-9 * 24 * time.Hour), LastAt: Noon.Add(-2 * 24 * time.Hour),
			Sample: wire.ErrorSample{ID: MessageID(3), Key: "/archive/2019/<b>old</b>",
				Reason: "no such path"}}}}

	f.Data.Jobs = []wire.Job{
		{ID: "r1", State: "running", Reason: "title limit was raised to 300",
			Filter:        wire.JobFilter{Fingerprint: TitleError},
			RatePerMinute: 120, StopAtErrorRate: 0.2,
			Matched: 387, Replayed: 142, Delivered: 118, DeadAgain: 2, Waiting: 22, Refused: 4,
			StartedAt: Noon.Add(-70 * time.Second), UpdatedAt: Noon.Add(-time.Second)},
		{ID: "r0", State: "stopped", Reason: "database is back", StopReason: "12 of 20 died again",
			Filter: wire.JobFilter{Contract: "article"}, RatePerMinute: 60, StopAtErrorRate: 0.5,
			Matched: 53, Replayed: 20, Delivered: 8, DeadAgain: 12,
			StartedAt: Noon.Add(-45 * time.Minute),
			UpdatedAt: Noon.Add(-44 * time.Minute), FinishedAt: Noon.Add(-44 * time.Minute)}}

	f.Data.Batches = busyBatches()
	f.Data.Schedules = []dashboard.Schedule{
		{Name: "front-page", Cron: "*/15 * * * *", TimeZone: "Europe/Berlin",
			NextAt:    Noon.Add(15 * time.Minute).Truncate(15 * time.Minute),
			LastDueAt: Noon.Truncate(15 * time.Minute),
			LastID:    MessageID(5)},
		{Name: "nightly-report", Cron: "30 2 * * *", TimeZone: "Europe/Berlin",
			NextAt: Noon.Add(13*time.Hour + 30*time.Minute), LastDueAt: Noon.Add(-11 * time.Hour),
			LastID: MessageID(6)},
		{Name: "archive", Cron: "@monthly", TimeZone: "UTC", Paused: true}}

	for n := range 3 {
		m := BusyMessage(200 + 4*n)
		m.Stage, m.FinishedAt, m.AttemptCount, m.CMSStatus, m.AttemptLog = weir.Scheduled,
			time.Time{}, 0, 0, nil
		m.DeliverAt = Noon.Add(time.Duration(n*n)*20*time.Hour + time.Hour)
		f.Data.Scheduled = append(f.Data.Scheduled, m)
	}

	for n := 1; n <= 24; n++ {
		f.Data.Messages = append(f.Data.Messages, BusyMessage(n))
	}

	f.Data.Messages[0].Batch, f.Data.Messages[0].BatchPart = f.Data.Batches[0].ID, 17
	edited := BusyMessage(40)
	edited.Stage, edited.Edited.At, edited.Edited.Note, edited.Replays = weir.Delivered,
		Noon.Add(-4*time.Minute),
		"title shortened by the desk", 1
	edited.AttemptLog = append(failedAttempts(edited.AcceptedAt),
		wire.Attempt{Number: 5, At: Noon.Add(-3*time.Minute - 59*time.Second),
			Duration: wire.Milliseconds(61 * time.Millisecond),
			Outcome:  weir.OutcomeDelivered, Status: 200})

	edited.FinishedAt, edited.AttemptCount = Noon.Add(-3*time.Minute-58*time.Second), 5
	f.Data.Messages = append(f.Data.Messages, edited)
	f.Data.Bodies[edited.ID] = longTitle
	f.Data.Edits[edited.ID] = "--- accepted\n+++ edited\n@@ -1,4 +1,4 @@\n" +
		" <article path=\"/news/politics/40\" version=\"40\">\n-  <title>" +
		strings.Repeat("A very long title ", 12) +
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

// busyBatches returns a batch in each of the states BatchFiling, BatchFiled and BatchRejected. Each
// batch has an invalid part.
func busyBatches() []wire.Batch {
	problem := wire.PartProblem{Part: 17, File: "monday/feed.xml", Line: 212,
		Message: "the message breaks a rule of its contract",
		Problems: []weir.Problem{{Path: "./title", Rule: "required",
			Message: "is required and is missing", Line: 213}}}

	filing := wire.Batch{ID: "90523457719920123456789abcdef", State: wire.BatchFiling,
		Mode:   wire.BatchValid,
		Format: wire.BatchZip, Split: []string{"/feed/{urn:news}article"}, Bytes: 1_204_551,
		Parts: 2400, Invalid: 1,
		Filed: 1200, AcceptedAt: Noon.Add(-20 * time.Second), UpdatedAt: Noon.Add(-time.Second),
		Problems: []wire.PartProblem{problem},
		Stages:   map[weir.Stage]int{weir.Delivered: 1100, weir.Queued: 99, weir.Dead: 1}}

	filed, rejected := filing, filing
	filed.ID, filed.State, filed.Filed, filed.FinishedAt = "9052345871992f0e1d2c3b4a59687",
		wire.BatchFiled, 2399,
		Noon.Add(-time.Hour)
	filed.Stages = map[weir.Stage]int{weir.Delivered: 2390, "removed": 9}
	rejected.ID, rejected.State = "90523469719925a4b3c2d1e0f9687", wire.BatchRejected
	rejected.Filed, rejected.Stages = 0, nil
	rejected.Mode, rejected.Reason, rejected.FinishedAt = wire.BatchAll,
		"1 of 2400 parts are invalid",
		Noon.Add(-2*time.Hour)

	return []wire.Batch{filing, filed, rejected}
}

func busyLanes() []wire.Lane {
	lanes := make([]wire.Lane, 6)
	for n := range lanes {
		waiting := int64(n*n*37 + n)
		lanes[n] = wire.Lane{Number: n, Exact: true, Held: n < 4,
			Holder: fmt.Sprintf("weir-7f9c%d-1%d", n, 20+n),
			Fence:  int64(41 + 3*n), RatesUntil: WholeUntil, Rate1: pointerTo(212 - float64(n*31)),
			Rate15: pointerTo(180 - float64(n*25)),
			Counts: wire.Counts{Delivered: 184_220 - int64(n*9_131), Dead: int64(n * 43),
				Superseded: 1_204, Cancelled: 12, Waiting: waiting},
			Scheduled: waiting / 5, Retrying: waiting / 9, Queued: waiting - waiting/5 - waiting/9}

		l := &lanes[n]
		l.Accepted = l.Delivered + l.Dead + l.Superseded + l.Cancelled + l.Waiting
		if waiting > 0 {
			l.OldestAt, l.EmptyIn = Noon.Add(-time.Duration(n*n*21)*time.Second),
				pointerTo(float64(n*n*14))
		}
	}

	lanes[2].LastError, lanes[2].LastErrorAt = "upstream database timed out after 10000 ms",
		Noon.Add(-31*time.Second)
	lanes[2].LastDeliveredAt = Noon.Add(-time.Second)
	lanes[1].AttemptingID, lanes[1].AttemptingSince = MessageID(4), Noon.Add(-11*time.Second)
	lanes[3].Exact = false
	lanes[3].PausedBy, lanes[3].PausedUntil, lanes[3].PauseReason = "cms", Noon.Add(24*time.Second),
		"503 Service Unavailable: deploying, back in a minute"
	lanes[4].PausedBy, lanes[4].PauseReason, lanes[4].EmptyIn, lanes[4].Held = "operator",
		"reindexing the archive, ask Kim", nil, false
	lanes[4].Pauses = []wire.Pause{{Lane: 4, Reason: "reindexing the archive, ask Kim",
		By:    "grace.brewster.murray.hopper@operations.example.org",
		Since: Noon.Add(-40 * time.Minute)}}
	lanes[1].Pauses = []wire.Pause{{Lane: 1, Key: "/news/politics/1",
		Reason: "legal is looking at it", By: "key 3fa9c2d1",
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

		s := dashboard.Step{At: Noon.Truncate(time.Minute).Add(time.Duration(i-59) * time.Minute),
			Accepted: accepted, Delivered: delivered, Dead: int64(i % 7),
			AttemptP50: milliseconds(38 * wave * slow), AttemptP95: milliseconds(120 * wave * slow),
			AttemptP99: milliseconds(410 * wave * slow),
			LagP50:     milliseconds(70 * wave * slow), LagP95: milliseconds(900 * wave * slow),
			Waiting: int64(300 + 400*math.Abs(math.Sin(float64(i)/9))*slow/3),
			Oldest:  milliseconds(8000 * slow)}

		h.Steps = append(h.Steps, s)
		h.Sum.Accepted += s.Accepted
		h.Sum.Delivered += s.Delivered
		h.Sum.Dead += s.Dead
	}

	h.CompleteUntil, h.Sum.AnsweredAt, h.Sum.FailedAt = WholeUntil, Noon.Add(-time.Second),
		Noon.Add(-30*time.Second)
	transactions["table transact"], transactions["table query"], transactions["queue put"],
		transactions["queue get"],
		transactions["blob lease-renew"], transactions["blob put"] = 9_412, 3_120, 411, 388, 720, 12
	h.Sum.Transactions = transactions
	h.Sum.Attempts = map[weir.Outcome]int64{weir.OutcomeDelivered: h.Sum.Delivered,
		weir.OutcomeRetry: 812, weir.OutcomeRejected: 43, weir.OutcomeUnavailable: 61}
	h.Sum.AttemptP50, h.Sum.AttemptP95, h.Sum.AttemptP99 = milliseconds(41), milliseconds(188),
		milliseconds(920)
	h.Sum.LagP50, h.Sum.LagP95 = milliseconds(84), milliseconds(3100)
	h.Sum.Refused = 61
	h.Refusals = []wire.Refusal{
		{Way: "post", Reason: "invalid", Contract: "article", Rule: "./title max", Count: 44},
		{Way: "file", Reason: "invalid", Rule: "/ contract", Count: 12},
		{Way: "post", Reason: "too_large", Count: 5}}

	h.Senders = []wire.Sender{{Sender: "3fa9c2d1", Accepted: 31_204},
		{Sender: "77e0aa15", Accepted: 6_118}}

	return h
}

func milliseconds(n float64) time.Duration { return time.Duration(n * 1e6) }

// BusyMessage returns a message with the id MessageID(n). The message is delivered if n is even,
// dead if n%4 is 1, and waits for a retry if n%4 is 3.
func BusyMessage(n int) wire.MessageLine {
	m := wire.MessageLine{Size: 812, Message: wire.Message{ID: MessageID(n), Contract: "article",
		Key:     fmt.Sprintf("/news/politics/%d", n),
		Version: fmt.Sprint(n + 40), Lane: n % 4, Sequence: int64(4000 + n),
		Shown: map[string]string{"desk": "politics",
			"title": fmt.Sprintf("Council votes on item %d of the budget", n)},
		AcceptedAt: Noon.Add(-time.Duration(n) * 47 * time.Second), AttemptCount: 1}}

	at := m.AcceptedAt.Add(140 * time.Millisecond)
	switch n % 4 {
	case 0, 2:
		m.Stage, m.FinishedAt, m.CMSStatus = weir.Delivered, at.Add(60*time.Millisecond), 200
		m.AttemptLog = []wire.Attempt{{Number: 1, At: at,
			Duration: wire.Milliseconds(58 * time.Millisecond), Outcome: weir.OutcomeDelivered,
			Status: 200}}

	case 1:
		m.Stage, m.CMSStatus, m.LastError = weir.Dead, 422,
			"Field title: at most 200 characters, 231 were sent"
		m.AcceptedAt = Noon.Add(-40 * time.Minute)
		m.AttemptLog = failedAttempts(m.AcceptedAt)
		m.AttemptCount, m.FinishedAt = 4, m.AttemptLog[3].At.Add(80*time.Millisecond)

	case 3:
		m.Stage, m.NextAttemptAt, m.CMSStatus, m.LastError = weir.Retrying,
			Noon.Add(12*time.Second), 500,
			"upstream database timed out after 10000 ms"
		m.AttemptLog = []wire.Attempt{{Number: 1, At: at,
			Duration: wire.Milliseconds(10 * time.Second), Outcome: weir.OutcomeRetry,
			Status: 500, Reason: m.LastError}}
		m.Position, m.WaitsFor, m.ExpectedAt = 2,
			"behind "+MessageID(n+4)+" of its key, which is retried at 12:00:19",
			Noon.Add(14*time.Second)
	}

	return m
}

func failedAttempts(accepted time.Time) []wire.Attempt {
	at := accepted.Add(120 * time.Millisecond)
	return []wire.Attempt{
		{Number: 1, At: at, Duration: wire.Milliseconds(10 * time.Second),
			Outcome: weir.OutcomeRetry, Status: 500,
			Reason: "upstream database timed out after 10000 ms",
			Answer: `{"error":"upstream database timed out after 10000 ms"}`},
		{Number: 2, At: at.Add(14 * time.Second), Duration: wire.Milliseconds(30 * time.Second),
			Outcome: weir.OutcomeRetry,
			Reason:  "no answer within 30s"},
		{Number: 3, At: at.Add(80 * time.Second), Duration: wire.Milliseconds(2 * time.Millisecond),
			Outcome: weir.OutcomeUnavailable,
			Reason:  "dial tcp 10.1.4.7:443: connection refused"},
		{Number: 4, At: at.Add(21 * time.Minute),
			Duration: wire.Milliseconds(64 * time.Millisecond), Outcome: weir.OutcomeRejected,
			Status: 422, Reason: "Field title: at most 200 characters, 231 were sent",
			Answer: `{"code":"title.length","max":200,"sent":231}`},
	}
}

func busyChanges() []dashboard.Change {
	return []dashboard.Change{
		{At: Noon.Add(-2 * time.Minute), Action: "pause",
			Detail:   `{"all":true,"for":"2h","reason":"the CMS is being upgraded"}`,
			Function: "write", Principal: "ada@example.org", KeyID: "3fa9c2d1",
			From:   "198.51.100.7:51234",
			Status: 200},
		{At: Noon.Add(-9 * time.Minute), Action: "edit", Subject: MessageID(40),
			Detail:   `{"bodyBytes":312,"note":"title shortened"}`,
			Function: "write", KeyID: "3fa9c2d1", From: "198.51.100.7:51234", Status: 202},
		{At: Noon.Add(-11 * time.Minute), Action: "replay", Subject: MessageID(40),
			Detail:   `{"force":"true"}`,
			Function: "write", Principal: "grace.brewster.murray.hopper@operations.example.org",
			KeyID: "3fa9c2d1",
			From:  "198.51.100.7:51234", Status: 202},
		{At: Noon.Add(-time.Hour), Action: "schedule.put", Subject: "nightly",
			Detail:   `{"cron":"30 2 * * *","messageBytes":97,"timeZone":"Europe/Berlin"}`,
			Function: "schedules", KeyID: "77e0aa15", From: "203.0.113.4, 198.51.100.200:443",
			Status: 201},
		{At: Noon.Add(-3 * time.Hour), Action: "cancel", Subject: MessageID(7), Function: "cancel",
			KeyID: "c01df00d", From: "203.0.113.9:40112", Status: 503},
		{At: Noon.Add(-49 * time.Hour), Action: "lanes.change", Detail: `{"lanes":4}`,
			Function: "command", Principal: "root",
			From: "ops-1"},
	}
}
