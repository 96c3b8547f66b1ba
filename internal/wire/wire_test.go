package wire_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

// Clients depend on the names of the JSON fields, and on the fields that the JSON leaves out.
func TestJSON(t *testing.T) {
	t.Parallel()
	half, zero := 0.5, 0.0
	lane := 0
	message := wire.Message{ID: "AQ1", Stage: weir.Queued, Contract: "article", Key: "/a", Lane: 1,
		Sequence: 7, AcceptedAt: noon}
	retried := message
	retried.Edited = wire.Edit{At: noon}
	retried.AttemptCount, retried.NextAttemptAt, retried.Position = 1, noon.Add(time.Minute), 2
	retried.AttemptLog = []wire.Attempt{{Number: 1, At: noon,
		Duration: wire.Milliseconds(1999 * time.Microsecond), Outcome: weir.OutcomeRetry}}
	const head = `{"id":"AQ1","stage":"queued","contract":"article","key":"/a","lane":1,"sequence":7,`
	const counts = `"accepted":0,"delivered":0,"dead":0,"cancelled":0,"superseded":0,"discarded":0,"waiting":0`
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"Message": {message, head + `"attempts":0,"acceptedAt":"2026-01-08T12:00:00Z"}`},
		"MessageRetried": {retried, head + `"attempts":1,"acceptedAt":"2026-01-08T12:00:00Z",` +
			`"nextAttemptAt":"2026-01-08T12:01:00Z","edited":{"at":"2026-01-08T12:00:00Z"},"position":2,` +
			`"attemptLog":[{"number":1,"at":"2026-01-08T12:00:00Z","durationMs":1,"outcome":"retry"}]}`},
		"MessageLine": {wire.MessageLine{Message: message}, head +
			`"attempts":0,"acceptedAt":"2026-01-08T12:00:00Z","size":0}`},
		"Receipt": {wire.Receipt{ID: "AQ1", AcceptedAt: noon},
			`{"id":"AQ1","stage":"","key":"","lane":0,` +
				`"sequence":0,"acceptedAt":"2026-01-08T12:00:00Z","duplicate":false}`},
		"Lane": {wire.Lane{Pauses: []wire.Pause{}},
			`{"lane":0,` + counts + `,"scheduled":0,"queued":0,"retrying":0,` +
				`"exact":false,"held":false,"fence":0,"pauses":[]}`},
		"LaneWaiting": {wire.Lane{Counts: wire.Counts{Moved: 1}, OldestAt: noon,
			OldestSeconds: &half, Rate1: &zero, PausedUntil: noon},
			`{"lane":0,"accepted":0,"delivered":0,"dead":0,"cancelled":0,"superseded":0,"discarded":0,"moved":1,` +
				`"waiting":0,"scheduled":0,"queued":0,"retrying":0,"exact":false,` +
				`"oldestWaitingAt":"2026-01-08T12:00:00Z","oldestWaitingSeconds":0.5,"ratePerMinute1":0,"held":false,` +
				`"fence":0,"pausedUntil":"2026-01-08T12:00:00Z","pauses":null}`},
		"LaneList": {wire.LaneList{Lanes: []wire.Lane{}}, `{"lanes":[],"totals":{` + counts +
			`},"calendar":{"closed":false}}`},
		"Job": {wire.Job{ID: "one", State: wire.JobRunning, Filter: wire.JobFilter{Lane: &lane},
			StartedAt: noon,
			UpdatedAt: noon}, `{"id":"one","state":"running","filter":{"lane":0},"ratePerMinute":0,` +
			`"stopAtErrorRate":0,"force":false,"matched":0,"replayed":0,"refused":0,"skipped":0,"delivered":0,` +
			`"deadAgain":0,"otherwise":0,"waiting":0,"startedAt":"2026-01-08T12:00:00Z",` +
			`"updatedAt":"2026-01-08T12:00:00Z"}`},
		"JobPlan": {wire.JobPlan{Count: 3, EstimatedSeconds: 61}, `{"count":3,"complete":false,` +
			`"estimatedSeconds":61,"keys":0,"refused":0}`},
		"PauseList": {wire.PauseList{Pauses: wire.NewPauses([]weir.Pause{{Lane: 1, Key: "/a", Reason: "r", Since: noon},
			{Lane: 2, Reason: "r", By: "ada", Since: noon, Until: noon}})}, `{"pauses":[` +
			`{"scope":"key","lane":1,"key":"/a","reason":"r","since":"2026-01-08T12:00:00Z"},` +
			`{"scope":"lane","lane":2,"reason":"r","by":"ada","since":"2026-01-08T12:00:00Z","until":"2026-01-08T12:00:00Z"}]}`},
		"PauseListEmpty": {wire.PauseList{Pauses: wire.NewPauses(nil),
			Calendar: &wire.Calendar{NextChange: noon}},
			`{"pauses":[],"calendar":{"closed":false,"nextChange":"2026-01-08T12:00:00Z"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(c.value)
			if err != nil || string(got) != c.want {
				t.Errorf("got %s (%v)\nwant %s", got, err, c.want)
			}
		})
	}
}

// A client must be able to decode the JSON of NewMessage without a loss.
func TestMessage_RoundTrip(t *testing.T) {
	t.Parallel()
	sent := wire.NewMessage(weir.Status{Stage: weir.Delivered, FinishedAt: noon, EditedAt: noon,
		EditNote: "title",
		Message:  weir.Message{Contract: "article", Key: "/a", AcceptedAt: noon, DueAt: noon},
		Attempts: []weir.Attempt{{Number: 1, At: noon, Duration: 2 * time.Second,
			Outcome: weir.OutcomeDelivered}}})

	data, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}

	var read wire.Message
	if err := json.Unmarshal(data, &read); err != nil || !reflect.DeepEqual(read, sent) {
		t.Errorf("got %+v (%v)\nwant %+v", read, err, sent)
	}

	if !sent.DeliveredAt.Equal(noon) || !sent.Edited.Exists() {
		t.Errorf("got delivered at %s and an edit %v, want %s and an edit", sent.DeliveredAt,
			sent.Edited, noon)
	}
}

func TestCounts_IsBalanced(t *testing.T) {
	t.Parallel()
	c := wire.Counts{Accepted: 21, Delivered: 1, Dead: 2, Cancelled: 3, Superseded: 4, Moved: 5,
		Waiting: 6}
	if !c.IsBalanced() {
		t.Errorf("got %+v not balanced, want it balanced", c)
	}

	if c.Dead++; c.IsBalanced() {
		t.Errorf("got %+v balanced, want it not balanced", c)
	}
}
