package wire

import (
	"encoding/json"
	"time"

	"weir/internal/weir"
)

// ScheduleDefinition is the body of a request that stores a schedule or asks for a preview. A
// client can read a Schedule and send it back unchanged. State is ignored, and Name must be empty
// or the name in the address.
type ScheduleDefinition struct {
	Name        string          `json:"name,omitempty"`
	Cron        string          `json:"cron"`
	TimeZone    string          `json:"timeZone,omitempty"`  // "" = UTC
	Message     *string         `json:"message,omitempty"`   // set either Message or MessageID
	MessageID   string          `json:"messageId,omitempty"` // id of the stored message to copy
	ContentType string          `json:"contentType,omitempty"`
	Overlap     string          `json:"overlap,omitempty"` // "queue" or "skip"; "" = "queue"
	Missed      string          `json:"missed,omitempty"`  // "one", "all" or "none"; "" = "one"
	Paused      bool            `json:"paused,omitempty"`
	Start       time.Time       `json:"start,omitzero"`
	End         time.Time       `json:"end,omitzero"`
	State       json.RawMessage `json:"state,omitempty"`
}

// Schedule is a recurring message: its definition, and its state.
type Schedule struct {
	Name     string `json:"name"`
	Cron     string `json:"cron"`
	TimeZone string `json:"timeZone"`
	Message  string `json:"message,omitempty"` // "" in a list of schedules
	// set instead of Message if JSON cannot carry Message
	MessageID   string        `json:"messageId,omitempty"`
	ContentType string        `json:"contentType"`
	Overlap     string        `json:"overlap"`
	Missed      string        `json:"missed"`
	Paused      bool          `json:"paused"`
	Start       time.Time     `json:"start,omitzero"`
	End         time.Time     `json:"end,omitzero"`
	State       ScheduleState `json:"state"`
}

// ScheduleState describes the next run and the past runs of a schedule. A run is an occurrence of
// the schedule.
type ScheduleState struct {
	// nil = the schedule is paused, or has no further run
	NextAt        *time.Time `json:"nextAt,omitempty"`
	NextRun       int64      `json:"nextRun"` // number of the next run
	LastDueAt     time.Time  `json:"lastDueAt,omitzero"`
	LastRun       int64      `json:"lastRun,omitempty"`
	LastMessageID string     `json:"lastMessageId,omitempty"`
	LastFiledAt   time.Time  `json:"lastFiledAt,omitzero"`
	Filed         int64      `json:"filed"`   // number of runs that stored a message
	Skipped       int64      `json:"skipped"` // number of runs left out because Overlap is "skip"
	LastSkippedAt time.Time  `json:"lastSkippedAt,omitzero"`
	// number of runs left out because Weir reached them too late
	Missed int64 `json:"missed"`
	// number of runs whose message was refused
	Refused int64  `json:"refused"`
	Refusal string `json:"refusal,omitempty"` // reason of the last refused run
	// id of the message that the schedule copied; "" = none
	CopiedFrom string    `json:"copiedFrom,omitempty"`
	CreatedAt  time.Time `json:"createdAt"`
	ChangedAt  time.Time `json:"changedAt"`
}

// ScheduleList has all schedules.
type ScheduleList struct {
	Schedules []Schedule `json:"schedules"`
}

// RunReceipt is the answer to an operator's request for a run. It describes the run's message.
type RunReceipt struct {
	ID         string     `json:"id"`
	Stage      weir.Stage `json:"stage"`
	Key        string     `json:"key"`
	Lane       int        `json:"lane"`
	Sequence   int64      `json:"sequence"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	Run        int64      `json:"run"`
}

// SchedulePreview has the next runs of a schedule, and the local times that clock changes skip or
// repeat.
type SchedulePreview struct {
	Runs    []ScheduleRun `json:"runs"`
	Skipped []ClockChange `json:"skipped"`
	Doubled []ClockChange `json:"doubled"`
}

// ScheduleRun is a future run.
type ScheduleRun struct {
	DueAt     time.Time `json:"dueAt"`
	LocalTime string    `json:"localTime"`
	Offset    string    `json:"offset"` // offset of the local time, such as +01:00
	// "first" or "second" if the local time occurs twice; "" = once
	Doubled string `json:"doubled,omitempty"`
}

// ClockChange is a local time that a clock change skips or repeats.
type ClockChange struct {
	LocalTime string    `json:"localTime"`
	ChangeAt  time.Time `json:"clocksChangeAt"`
	Runs      int       `json:"runs"` // number of runs at this local time; 0 = the time is skipped
	Note      string    `json:"note"`
}
