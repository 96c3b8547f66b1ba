package dashboard

import (
	"context"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

// Lanes reads the states of the lanes, one snapshot each.
type Lanes interface {
	Lanes(ctx context.Context) (wire.LaneList, error)
}

// Past reads the counters of the last span, by steps.
type Past interface {
	Past(ctx context.Context, span, step time.Duration) (History, error)
}

// Messages finds and reads messages. It returns weir.NotFound for a missing message, and weir.Malformed for an
// invalid query.
type Messages interface {
	Search(ctx context.Context, q Query) (wire.MessageList, error)
	Message(ctx context.Context, id weir.ID) (wire.MessageLine, error)
	// Body returns the accepted or the edited body as text.
	Body(ctx context.Context, id weir.ID, edited bool) (string, error)
	// Difference returns the edit of a message as a unified diff.
	Difference(ctx context.Context, id weir.ID) (string, error)
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

// Schedules reads recurring messages.
type Schedules interface {
	Schedules(ctx context.Context) ([]Schedule, error)
}

// Changes reads the audit log, newest first. The token is that of the previous page, or "".
type Changes interface {
	Changes(ctx context.Context, token string) (ChangeList, error)
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

// IsMessage reports whether the subject is a message's id.
func (c Change) IsMessage() bool {
	_, err := weir.ParseID(c.Subject)
	return err == nil
}

// History has the counters of each step, oldest first, and their sums.
type History struct {
	Steps []Step
	Sum   Step
}

// Step has the counters of one step. Waiting and Oldest are the last known values.
type Step struct {
	At                                 time.Time
	Accepted, Delivered, Dead          int64
	Attempts                           map[weir.Outcome]int64
	AttemptP50, AttemptP95, AttemptP99 time.Duration // 0 = there was no attempt
	LagP50, LagP95                     time.Duration // from acceptance or due time to delivery; 0 = none
	Waiting                            int64
	Oldest                             time.Duration
	Transactions                       map[string]int64 // by service and operation
}

// Query is an operator's search. Empty fields match every message.
type Query struct {
	Stage, Key, Contract, Fingerprint, Text, Continue string

	Lane     int // -1 = all
	From, To time.Time
	Limit    int
}

// Schedule is a recurring message.
type Schedule struct {
	Name, Cron, TimeZone string
	Paused               bool
	NextAt, LastDueAt    time.Time
	LastID               string
	Refusal              string // why the last occurrence was not filed
}
