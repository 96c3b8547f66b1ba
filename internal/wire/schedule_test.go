package wire_test

import (
	"encoding/json"
	"testing"

	"weir/internal/wire"
)

// Clients depend on how the JSON shows a field without a value: some fields are left out, others
// are null.
func TestSchedule_JSON(t *testing.T) {
	t.Parallel()
	const at = `"2026-01-08T12:00:00Z"`
	const counts = `"filed":0,"skipped":0,`
	message := ""
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"Over": {wire.Schedule{Name: "n",
			State: wire.ScheduleState{CreatedAt: noon, ChangedAt: noon}},
			`{"name":"n","cron":"","timeZone":"","contentType":"","overlap":"","missed":"","paused":false,` +
				`"state":{"nextRun":0,` + counts + `"missed":0,"refused":0,"createdAt":` + at +
				`,"changedAt":` + at + `}}`},
		"Running": {wire.Schedule{Name: "n", Message: "m", Start: noon, End: noon,
			State: wire.ScheduleState{
				NextAt: &noon, LastDueAt: noon, LastRun: 1, LastMessageID: "AQ1", LastFiledAt: noon,
				LastSkippedAt: noon,
				Refusal:       "r", CopiedFrom: "AQ2", CreatedAt: noon, ChangedAt: noon}},
			`{"name":"n","cron":"","timeZone":"","message":"m","contentType":"","overlap":"","missed":"",` +
				`"paused":false,"start":` + at + `,"end":` + at + `,"state":{"nextAt":` + at +
				`,"nextRun":0,` +
				`"lastDueAt":` + at + `,"lastRun":1,"lastMessageId":"AQ1","lastFiledAt":` + at +
				`,` + counts +
				`"lastSkippedAt":` + at +
				`,"missed":0,"refused":0,"refusal":"r","copiedFrom":"AQ2","createdAt":` + at +
				`,"changedAt":` + at + `}}`},
		"Definition": {wire.ScheduleDefinition{Cron: "@daily", MessageID: "AQ1"},
			`{"cron":"@daily","messageId":"AQ1"}`},
		"DefinitionWithEmptyMessage": {wire.ScheduleDefinition{Message: &message, End: noon},
			`{"cron":"","message":"","end":` + at + `}`},
		"Preview": {wire.SchedulePreview{Runs: []wire.ScheduleRun{{DueAt: noon, LocalTime: "l", Offset: "+01:00"}},
			Skipped: []wire.ClockChange{},
			Doubled: []wire.ClockChange{{LocalTime: "l", ChangeAt: noon, Runs: 2, Note: "n"}}},
			`{"runs":[{"dueAt":` + at + `,"localTime":"l","offset":"+01:00"}],"skipped":[],` +
				`"doubled":[{"localTime":"l","clocksChangeAt":` + at + `,"runs":2,"note":"n"}]}`},
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
