package dashboard

import (
	"context"
	"time"

	"weir/internal/weir"
)

// Lanes tells how the lanes are, in one snapshot each.
type Lanes interface {
	Lanes(ctx context.Context) (Report, error)
}

// Past tells what happened in the last span, in steps.
type Past interface {
	Past(ctx context.Context, span, step time.Duration) (History, error)
}

// Messages finds and tells about messages. What does not exist is weir.NotFound; a query
// that makes no sense is weir.Malformed.
type Messages interface {
	Search(ctx context.Context, q Query) (Found, error)
	Message(ctx context.Context, id weir.ID) (Message, error)
	// Body gives the body as accepted, or as edited, as text.
	Body(ctx context.Context, id weir.ID, edited bool) (string, error)
	// Difference gives the edit of a message as a unified difference.
	Difference(ctx context.Context, id weir.ID) (string, error)
}

// Errors puts dead messages together by what they died of.
type Errors interface {
	Errors(ctx context.Context) (Clusters, error)
}

// Replays tells of bulk replays, the newest first.
type Replays interface {
	Replays(ctx context.Context) ([]Job, error)
	Replay(ctx context.Context, id string) (Job, error)
}

// Schedules tells of recurring messages.
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

// Calendar says whether deliveries are closed by plan.
type Calendar struct {
	Closed     bool
	Reason     string
	Until      time.Time
	NextChange time.Time // zero = none is planned
}

// History is what happened: in each step, oldest first, and in all of them together.
type History struct {
	Steps []Step
	Sum   Step
}

// Step is what happened in one step. Waiting and Oldest are as last seen.
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

// Query is what an operator looks for. Empty fields say nothing.
type Query struct {
	Stage, Key, Contract, Fingerprint, Text, Continue string

	Lane     int // -1 = all
	From, To time.Time
	Limit    int
}

// Found is one page of what was found, newest first.
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

// Running says that the replay is under way.
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
