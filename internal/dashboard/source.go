package dashboard

import (
	"context"
	"time"

	"weir/internal/trial"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Lanes reads the states of the lanes, one snapshot each.
type Lanes interface {
	Lanes(ctx context.Context) (wire.LaneList, error)
}

// Past reads the counters of the last time of length span, one Step for each time of length step.
type Past interface {
	Past(ctx context.Context, span, step time.Duration) (History, error)
}

// Messages finds and reads messages. It returns weir.NotFound for a missing message, and weir.Malformed for an
// invalid query.
type Messages interface {
	Search(ctx context.Context, q Query) (wire.MessageList, error)
	Message(ctx context.Context, id weir.ID) (wire.MessageLine, error)
	// Body returns the accepted or the edited body without redacted values. It returns weir.Conflict if the values
	// to redact cannot be found.
	Body(ctx context.Context, id weir.ID, isEdited bool) (Body, error)
	// Difference returns the edit of a message as a unified diff.
	Difference(ctx context.Context, id weir.ID) (string, error)
	// Try returns the requests that the accepted or the edited body would make now, without redacted values. It sends
	// none of them.
	Try(ctx context.Context, id weir.ID, isEdited bool) (trial.Trial, error)
}

// ReplayObstacles reads whether a dead message can be replayed without force.
type ReplayObstacles interface {
	// ReplayObstacle returns the reason for which Weir refuses the replay of a dead message without force; "" = there
	// is none.
	ReplayObstacle(ctx context.Context, id weir.ID) (string, error)
}

// Body is a body as text.
type Body struct {
	Text       string
	IsRedacted bool // a mark stands in place of values
}

// Errors groups dead messages by cause.
type Errors interface {
	Errors(ctx context.Context) (wire.ErrorList, error)
}

// Replays reads bulk replays, the newest first.
type Replays interface {
	Replays(ctx context.Context) ([]wire.Job, error)
	Replay(ctx context.Context, id string) (wire.Job, error)
}

// Batches reads batches.
type Batches interface {
	// Batches returns the newest batches, newest first, without problems and stages.
	Batches(ctx context.Context) ([]wire.Batch, error)
	// Batch returns a batch with its problems. It returns weir.NotFound if there is none of the id.
	Batch(ctx context.Context, id string) (wire.Batch, error)
	// BatchStages counts the messages of a batch by stage. It may take long for a large batch.
	BatchStages(ctx context.Context, id string) (map[weir.Stage]int, error)
}

// Schedules reads recurring messages, and scheduled ones.
type Schedules interface {
	Schedules(ctx context.Context) ([]Schedule, error)
	// Schedule returns weir.NotFound if there is none of the name.
	Schedule(ctx context.Context, name string) (ScheduleDetail, error)
	// Scheduled lists scheduled messages by due time. The token is that of the previous page, or "".
	Scheduled(ctx context.Context, token string) (wire.MessageList, error)
}

// Changes reads the audit log, newest first.
type Changes interface {
	Changes(ctx context.Context, q ChangeQuery) (ChangeList, error)
}

// ChangeQuery selects entries of the audit log. Empty fields match every entry.
type ChangeQuery struct {
	Subject  string    // id of a message, or the name of another subject
	Since    time.Time // entries before it are left out
	Continue string    // ChangeList.Continue of the previous page
}

// ChangeList is a page of the audit log.
type ChangeList struct {
	Changes  []Change
	Continue string
}

// Change is an entry of the audit log.
type Change struct {
	At                                     time.Time
	Action, Subject, Detail                string
	Function, Principal, KeyID, From, Call string
	Status                                 int
}

// Author returns the name of who made the change; "" = it is not known.
func (c Change) Author() string {
	if c.Principal == "" && c.KeyID != "" {
		return "key " + c.KeyID
	}
	return c.Principal
}

// IsMessage reports whether the subject is a message's id.
func (c Change) IsMessage() bool {
	_, err := weir.ParseID(c.Subject)
	return err == nil
}

// History has the counters of each step, oldest first, and their sums. Figures after CompleteUntil may lack the
// part of other instances.
type History struct {
	Steps         []Step
	Sum           Step
	CompleteUntil time.Time
}

// Step has the counters of one step. Waiting and Oldest are the last known values.
type Step struct {
	At                                 time.Time
	Accepted, Delivered, Dead          int64
	Superseded                         int64
	Attempts                           map[weir.Outcome]int64
	AttemptP50, AttemptP95, AttemptP99 time.Duration // 0 = there was no attempt
	LagP50, LagP95                     time.Duration // from acceptance or due time to delivery; 0 = none
	Waiting                            int64
	Oldest                             time.Duration
	Transactions                       map[string]int64 // by service and operation
	AnsweredAt                         time.Time        // the last attempt that the CMS judged; zero = none
	FailedAt                           time.Time        // the last attempt that failed, or found the CMS unavailable
}

// Query is an operator's search. Empty fields match every message.
type Query struct {
	Stage, Key, Contract, Fingerprint, Text, Continue string

	Lane     int // -1 = all
	From, To time.Time
	Limit    int
	Sort     string            // as in the API; it sorts only the messages of one answer
	Filters  map[string]string // further filters, by their names in the API
}

// Schedule is a recurring message.
type Schedule struct {
	Name, Cron, TimeZone string
	Paused               bool
	NextAt, LastDueAt    time.Time
	LastID               string
	Refusal              string // why the last occurrence was not filed
}

// ScheduleDetail is a recurring message with its definition and its next runs.
type ScheduleDetail struct {
	Schedule
	Message      string // as much of it as a page shows
	Start, End   time.Time
	Runs         []ScheduledRun
	ClockChanges []string // sentences about local times that clocks skip or repeat

	Filed, Skipped, MissedRuns, Refused int64
}

// ScheduledRun is a future run.
type ScheduledRun struct {
	DueAt time.Time
	Local string // in the schedule's zone
}
