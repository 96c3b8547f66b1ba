package dashboard

import (
	"context"
	"time"

	"weir/internal/weir"
)

// Lanes reads the states of the lanes, one snapshot each.
type Lanes interface {
	Lanes(ctx context.Context) (Report, error)
}

// Past reads the counters of the last span, in steps.
type Past interface {
	Past(ctx context.Context, span, step time.Duration) (History, error)
}

// Messages finds and reads messages. A missing message is weir.NotFound; a query
// that makes no sense is weir.Malformed.
type Messages interface {
	Search(ctx context.Context, q Query) (Found, error)
	Message(ctx context.Context, id weir.ID) (Message, error)
	// Body returns the accepted or the edited body as text.
	Body(ctx context.Context, id weir.ID, edited bool) (string, error)
	// Difference returns the edit of a message as a unified diff.
	Difference(ctx context.Context, id weir.ID) (string, error)
}

// Errors groups dead messages by cause.
type Errors interface {
	Errors(ctx context.Context) (Clusters, error)
}

// Replays reads bulk replays, the newest first.
type Replays interface {
	Replays(ctx context.Context) ([]Job, error)
	Replay(ctx context.Context, id string) (Job, error)
}

// Schedules reads recurring messages.
type Schedules interface {
	Schedules(ctx context.Context) ([]Schedule, error)
}

// Report is all lanes, and the calendar.
type Report struct {
	Lanes    []Lane
	Calendar Calendar
}

// Counts are a lane's books: Accepted is the sum of the others and Waiting.
type Counts struct {
	Accepted, Delivered, Dead, Cancelled, Superseded, Moved, Waiting int64
}

// Lane is one lane.
type Lane struct {
	Number int
	Counts
	Scheduled, Queued, Retrying int64
	Exact                       bool // the three are complete
	OldestAt                    time.Time
	Rate1, Rate15               float64       // messages a minute, over the last minute and fifteen
	EmptyIn                     time.Duration // 0 = unknown
	Held                        bool
	Holder                      string
	Fence                       int64
	PausedBy                    string // "operator", "calendar", "cms"; "" = not paused
	PausedUntil                 time.Time
	PauseReason                 string
	Pauses                      []Pause
	NextDueAt                   time.Time
	LastError                   string
	LastErrorAt                 time.Time
}

// Pause is a pause by an operator. A zero Until: until it is resumed.
type Pause struct {
	Lane   int
	Key    string // "" = the whole lane
	Reason string
	Since  time.Time
	Until  time.Time
}

// Calendar is the state of the calendar.
type Calendar struct {
	Closed     bool
	Reason     string
	Until      time.Time
	NextChange time.Time // zero = none is planned
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
	AttemptP50, AttemptP95, AttemptP99 time.Duration // 0 = there was none
	LagP50, LagP95                     time.Duration // from acceptance, or the due time, to delivery
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

// Found is one page of a search, newest first.
type Found struct {
	Messages    []Message
	Looked      int
	NotSearched int // bodies in blobs, which are not looked into
	Continue    string
}

// Message is a message with all that has happened to it; in a list, without Attempts.
type Message struct {
	ID            string
	Stage         weir.Stage
	Contract      string
	Key           string
	Version       string
	Lane          int
	Sequence      int64
	Size          int
	AcceptedAt    time.Time
	DueAt         time.Time
	FinishedAt    time.Time
	NextAttemptAt time.Time
	ExpectedAt    time.Time
	Position      int // in its key's line, from 1; 0 = unknown
	WaitsFor      string
	AttemptCount  int
	Attempts      []weir.Attempt
	LastError     string
	CMSStatus     int
	SupersededBy  string
	EditedAt      time.Time
	EditNote      string
	Replays       int
	ReplayAskedAt time.Time // the last time; zero = never
	ReplayForced  bool
	ReplayRefused string
}

// Clusters are errors, the last seen first.
type Clusters struct {
	Clusters []Cluster
	Looked   int
	Complete bool
}

// Cluster is an error that messages died of.
type Cluster struct {
	Fingerprint, Contract, Message  string
	CMSStatus                       int
	Count, Keys                     int
	FirstAt, LastAt                 time.Time
	SampleID, SampleKey, SampleText string
}

// Job is a bulk replay.
type Job struct {
	ID, State, Reason, StopReason                                                 string
	Fingerprint, Key, Contract                                                    string // of its filter
	Lane                                                                          int    // -1 = all
	From, To                                                                      time.Time
	RatePerMinute                                                                 int
	StopAtErrorRate                                                               float64
	Force                                                                         bool
	Matched, Replayed, Refused, Skipped, Delivered, DeadAgain, Otherwise, Waiting int64
	StartedAt, UpdatedAt, FinishedAt                                              time.Time
}

// Running reports whether the replay is running.
func (j Job) Running() bool { return j.State == "running" }

// Done is how many came to an end.
func (j Job) Done() int64 { return j.Delivered + j.DeadAgain + j.Otherwise + j.Refused + j.Skipped }

// Schedule is a recurring message.
type Schedule struct {
	Name, Cron, TimeZone string
	Paused               bool
	NextAt, LastDueAt    time.Time
	LastID               string
	Refusal              string // why the last occurrence was not filed
}
