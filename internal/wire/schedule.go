package wire

import (
	"encoding/json"
	"time"

	"weir/internal/weir"
)

// ScheduleDefinition is the body of a PUT of a schedule, or of a POST to preview. A client may send an answer back:
// Name, if set, must be the name in the address, and State is ignored.
type ScheduleDefinition struct {
	Name        string          `json:"name,omitempty"`
	Cron        string          `json:"cron"`
	TimeZone    string          `json:"timeZone,omitempty"`  // "" = UTC
	Message     *string         `json:"message,omitempty"`   // either it or MessageID
	MessageID   string          `json:"messageId,omitempty"` // of the stored message to copy
	ContentType string          `json:"contentType,omitempty"`
	Overlap     string          `json:"overlap,omitempty"` // queue or skip; "" = queue
	Missed      string          `json:"missed,omitempty"`  // one, all or none; "" = one
	Paused      bool            `json:"paused,omitempty"`
	Start       time.Time       `json:"start,omitzero"`
	End         time.Time       `json:"end,omitzero"`
	State       json.RawMessage `json:"state,omitempty"`
}

// Schedule is a schedule: its definition, and its state.
type Schedule struct {
	Name        string        `json:"name"`
	Cron        string        `json:"cron"`
	TimeZone    string        `json:"timeZone"`
	Message     string        `json:"message,omitempty"`   // "" in a list
	MessageID   string        `json:"messageId,omitempty"` // in place of a message that JSON cannot hold
	ContentType string        `json:"contentType"`
	Overlap     string        `json:"overlap"`
	Missed      string        `json:"missed"`
	Paused      bool          `json:"paused"`
	Start       time.Time     `json:"start,omitzero"`
	End         time.Time     `json:"end,omitzero"`
	State       ScheduleState `json:"state"`
}

// ScheduleState has the runs of a schedule.
type ScheduleState struct {
	NextAt        *time.Time `json:"nextAt"` // null: paused, or over
	NextRun       int64      `json:"nextRun"`
	LastDueAt     time.Time  `json:"lastDueAt,omitzero"`
	LastRun       int64      `json:"lastRun,omitempty"`
	LastMessageID string     `json:"lastMessageId,omitempty"`
	LastFiledAt   time.Time  `json:"lastFiledAt,omitzero"`
	Filed         int64      `json:"filed"`
	Skipped       int64      `json:"skipped"`
	LastSkippedAt time.Time  `json:"lastSkippedAt,omitzero"`
	Missed        int64      `json:"missed"`
	Refused       int64      `json:"refused"`
	Refusal       string     `json:"refusal,omitempty"` // of the last refused run
	CopiedFrom    string     `json:"copiedFrom,omitempty"`
	CreatedAt     time.Time  `json:"createdAt"`
	ChangedAt     time.Time  `json:"changedAt"`
}

// ScheduleList has all schedules.
type ScheduleList struct {
	Schedules []Schedule `json:"schedules"`
}

// RunReceipt is the answer to a run by hand: the message that it has stored.
type RunReceipt struct {
	ID         string     `json:"id"`
	Stage      weir.Stage `json:"stage"`
	Key        string     `json:"key"`
	Lane       int        `json:"lane"`
	Sequence   int64      `json:"sequence"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	Run        int64      `json:"run"`
}

// SchedulePreview has the next runs of a schedule, and the local times that changes of clocks skip or double.
type SchedulePreview struct {
	Runs    []ScheduleRun `json:"runs"`
	Skipped []ClockChange `json:"skipped"`
	Doubled []ClockChange `json:"doubled"`
}

// ScheduleRun is a run to come.
type ScheduleRun struct {
	DueAt     time.Time `json:"dueAt"`
	LocalTime string    `json:"localTime"`
	Offset    string    `json:"offset"`            // of the local time, such as +01:00
	Doubled   string    `json:"doubled,omitempty"` // first or second, if the local time comes twice
}

// ClockChange is a local time that a change of clocks skips or doubles.
type ClockChange struct {
	LocalTime string    `json:"localTime"`
	ChangeAt  time.Time `json:"clocksChangeAt"`
	Runs      int       `json:"runs"` // 0 = skipped
	Note      string    `json:"note"`
}
