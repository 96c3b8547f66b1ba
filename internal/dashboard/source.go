package dashboard

import (
	"context"
	"time"

	"weir/internal/trial"
	"weir/internal/weir"
	"weir/internal/wire"
)

// Source reads what the pages show. Its methods return weir.NotFound for an id or a name that does
// not exist, and weir.Malformed for an invalid query.
type Source interface {
	// Lanes returns the states of the lanes. All numbers in wire.Counts of a lane are from the same
	// moment.
	Lanes(ctx context.Context) (wire.LaneList, error)

	// Past returns the counters of the past. The History covers the duration "span" up to now, and
	// each Step covers the duration "step".
	Past(ctx context.Context, span, step time.Duration) (History, error)
	// Uncounted returns the attempts of a lane between two times that count for no message, because
	// the CMS was away or refused everything. The times are rounded to minutes.
	Uncounted(ctx context.Context, lane int, from, to time.Time) (wire.Uncounted, error)

	Search(ctx context.Context, q Query) (wire.MessageList, error)
	Message(ctx context.Context, id weir.ID) (wire.MessageLine, error)
	// Body returns the accepted or the edited body, with redacted values hidden. It returns
	// weir.Conflict if it cannot find the values to redact.
	Body(ctx context.Context, id weir.ID, isEdited bool) (Body, error)
	// Difference returns the changes of a message's edit as a unified diff.
	Difference(ctx context.Context, id weir.ID) (string, error)
	// Try returns the requests that Weir would send now for the accepted or the edited body, with
	// redacted values hidden. Try sends none of these requests.
	Try(ctx context.Context, id weir.ID, isEdited bool) (trial.Trial, error)
	// ReplayObstacle returns the reason why Weir would refuse to replay a dead message without
	// force. It returns "" if Weir would not refuse.
	ReplayObstacle(ctx context.Context, id weir.ID) (string, error)

	// Errors groups dead messages by cause.
	Errors(ctx context.Context) (wire.ErrorList, error)

	// Replays returns the bulk replays, newest first.
	Replays(ctx context.Context) ([]wire.Job, error)
	Replay(ctx context.Context, id string) (wire.Job, error)

	// Batches returns the newest batches, newest first, without problems and stages.
	Batches(ctx context.Context) ([]wire.Batch, error)
	// Batch returns a batch with its problems.
	Batch(ctx context.Context, id string) (wire.Batch, error)
	// BatchStages returns the number of a batch's messages in each stage. For a large batch, the
	// call takes seconds.
	BatchStages(ctx context.Context, id string) (map[weir.Stage]int, error)

	Schedules(ctx context.Context) ([]Schedule, error)
	Schedule(ctx context.Context, name string) (ScheduleDetail, error)
	// Scheduled lists scheduled messages by due time. token is MessageList.Continue of the previous
	// page; "" = the first page.
	Scheduled(ctx context.Context, token string) (wire.MessageList, error)

	// Changes returns a page of the audit log, newest first.
	Changes(ctx context.Context, q ChangeQuery) (ChangeList, error)
}

// Reads limits the bodies that are in memory at the same time; see httpio.Reads.
type Reads interface {
	Take(ctx context.Context) (done func(), err error)
}

// Body is the body of a message as text.
type Body struct {
	Text       string
	IsRedacted bool // Text has [redacted] in place of at least one value
}

// ChangeQuery selects entries of the audit log. Empty fields match every entry.
type ChangeQuery struct {
	Subject  string    // id of a message, or the name of another subject
	Since    time.Time // entries before this time are left out
	Continue string    // ChangeList.Continue of the previous page
}

// ChangeList is a page of the audit log.
type ChangeList struct {
	Changes  []Change
	Continue string
}

// Change is an entry of the audit log; see audit.Entry.
type Change struct {
	At                                     time.Time
	Action, Subject, Detail                string
	Function, Principal, KeyID, From, Call string // Call is the host's id of the invocation
	Status                                 int
	// ids of the messages whose erasure changed Detail
	RedactedBy []string
}

// Author returns the name of the person who made the change. If the name is not known, Author
// returns the fingerprint of the key, such as "key 3fa9c2d1". If both are not known, Author returns
// "".
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

// History has the counters of each step, oldest step first, and the sums of the counters. Steps
// that end after CompleteUntil can lack the numbers of other instances.
type History struct {
	Steps         []Step
	Sum           Step
	CompleteUntil time.Time
	Refusals      []wire.Refusal // the most frequent reason first
	Senders       []wire.Sender  // the sender of most posts first
}

// Step has the counters of one interval of a History. Waiting is a sum over the lanes: for each
// lane, it includes the largest value that instances recorded in the interval. Oldest is the
// largest recorded value of all lanes. If no instance recorded a lane in the interval, Waiting and
// Oldest include the lane's values of an earlier interval, or 0.
type Step struct {
	At                                 time.Time
	Accepted, Delivered, Dead          int64
	Superseded                         int64
	Attempts                           map[weir.Outcome]int64
	AttemptP50, AttemptP95, AttemptP99 time.Duration // 0 = no attempt
	// time from acceptance, due time or replay to delivery; 0 = none
	LagP50, LagP95 time.Duration
	Waiting        int64
	Oldest         time.Duration // age of the oldest waiting message
	// storage transactions by service and operation
	Transactions map[string]int64
	Throttled    int64 // requests that storage throttled
	Refused      int64 // refused submissions
	Poisoned     int64 // tickets that the host gave up
	// last attempt that was delivered or rejected; zero = none
	AnsweredAt time.Time
	// last attempt that ended as retry or unavailable; zero = none
	FailedAt time.Time
}

// Query is an operator's search. Empty fields match every message.
type Query struct {
	Stage, Key, Contract, Fingerprint, Text, Continue string

	Lane     int // -1 = all lanes
	From, To time.Time
	Limit    int
	// order, as in the API; only the messages of one page of the list are sorted
	Sort    string
	Filters map[string]string // further filters, by their names in the API
}

// Schedule is a recurring message.
type Schedule struct {
	Name, Cron, TimeZone string
	Paused               bool
	NextAt, LastDueAt    time.Time
	LastID               string
	// the reason why the last occurrence was refused; "" = it was not refused
	Refusal string
}

// ScheduleDetail is a recurring message with its definition and its next runs.
type ScheduleDetail struct {
	Schedule
	Message      string // beginning of the message, as the page shows it
	Start, End   time.Time
	Runs         []ScheduledRun
	ClockChanges []string // sentences about local times that clock changes skip or repeat

	Filed, Skipped, MissedRuns, Refused int64
}

// ScheduledRun is a future run.
type ScheduledRun struct {
	DueAt time.Time
	Local string // local time in the schedule's zone
}
