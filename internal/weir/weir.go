// Package weir has the types that all packages share: messages, stages, outcomes, ids and error kinds.
// It does no I/O, and imports no other package of Weir.
package weir

import (
	"strconv"
	"strings"
	"time"
)

// Stage is the state of a message.
type Stage string

// The stages of a message. The last five are final.
const (
	Scheduled  Stage = "scheduled"
	Queued     Stage = "queued"
	Retrying   Stage = "retrying"
	Delivered  Stage = "delivered"
	Dead       Stage = "dead"
	Cancelled  Stage = "cancelled"
	Superseded Stage = "superseded"
	Discarded  Stage = "discarded" // it was dead, and an operator gave it up for good
)

// Final reports whether the stage changes only by an operator: a dead message is replayed or discarded.
func (s Stage) Final() bool {
	return s == Delivered || s == Dead || s == Cancelled || s == Superseded || s == Discarded
}

// Message is a message of an upstream, with its place in a lane. It does not change after the append.
type Message struct {
	ID          ID        // its present place; set by the append
	Origin      ID        // its first place, if that is another one
	Contract    string    // name of the contract it matched
	Upstream    string    // name of the upstream that sent it; empty if the settings have none
	Key         string    // ordering key; empty for contracts without one
	Version     string    // from the body; empty if the contract has no path for it
	Supersede   bool      // newer versions of its key and contract may supersede it
	Skip        bool      // while it waits for a retry, later messages of its key are sent
	ContentType string    // sent on as accepted
	TraceParent string    // W3C trace context of the upstream's request; empty or valid
	TraceState  string    // W3C tracestate; empty or valid, and empty without TraceParent
	Callback    string    // address that gets a callback when it is final; empty = none
	Batch       string    // id of the batch that it is a part of; empty = none
	BatchPart   int       // its place in the batch, from 1
	DueAt       time.Time // zero = now
	AcceptedAt  time.Time
	Body        []byte            // as accepted; nil if only the rest was read
	Size        int               // bytes of the body
	Edition     int               // number of edits by operators; 0 = the accepted body
	Replays     int               // number of replays, with and without an edit
	Shown       map[string]string // values of the body for lists, by the names that the contract gives them
}

// Public returns the id that the upstream got, with which the CMS's Idempotency-Key begins, too. It
// stays the same when a message moves to another epoch.
func (m *Message) Public() ID {
	if m.Origin.IsZero() {
		return m.ID
	}
	return m.Origin
}

// TraceID returns the id of the message's trace; empty = none.
func (m *Message) TraceID() string {
	if parts := strings.Split(m.TraceParent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}

// Outcome is the result class of an attempt.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeDelivered   Outcome = "delivered"
	OutcomeRetry       Outcome = "retry"       // the attempt counts, and the message is tried again
	OutcomeRejected    Outcome = "rejected"    // another attempt would fail, too
	OutcomeUnavailable Outcome = "unavailable" // the CMS failed, not the message: the attempt does not count
	OutcomeNone        Outcome = "none"        // Weir cancelled the attempt: it does not count
)

// Delivery is an attempt to be made.
type Delivery struct {
	Message      *Message
	Fence        int64     // rises each time the lane changes hands
	Attempt      int       // from 1
	RememberedID string    // the CMS's id of the key's item, as an earlier attempt learned it; empty = none
	Since        time.Time // earliest possible start: the acceptance, the due time, or the end of the attempt before
}

// Result is the result of an attempt.
type Result struct {
	Outcome      Outcome
	Status       int           // the CMS's HTTP status; 0 = no answer
	Reason       string        // one line for people: the CMS's words or the error
	Body         string        // the first 2 KB of the answer
	RetryAfter   time.Duration // of the CMS; 0 = none
	Unanswered   bool          // the CMS may still work on it: the settle time applies
	Refused      bool          // unavailable, by an answer that may concern only this message (403)
	StartedAt    time.Time
	Duration     time.Duration
	RememberedID string // the CMS's id of the key's item, as this attempt learned it; empty = it learned none
	IsForgotten  bool   // the CMS no longer has the item of Delivery.RememberedID
	Steps        []Step // of a chain of requests; nil = a single request
}

// Step is the record of one request of a chain.
type Step struct {
	Name     string        `json:"name"`
	At       time.Time     `json:"-"`        // kept for the trace only
	Duration time.Duration `json:"duration"` // nanoseconds
	Status   int           `json:"status,omitempty"`
	Reason   string        `json:"reason,omitempty"` // of a step that began the chain anew
}

// Attempt is the record of one attempt.
type Attempt struct {
	Number   int           `json:"number"`
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"duration"` // nanoseconds
	Outcome  Outcome       `json:"outcome"`
	Status   int           `json:"status,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Body     string        `json:"body,omitempty"`
	Fence    int64         `json:"fence,omitempty"`
	Steps    []Step        `json:"steps,omitempty"`
}

// Status is the state of a message, with its attempts.
type Status struct {
	Message       Message
	Stage         Stage
	Attempts      []Attempt // the first and the last ten
	AttemptCount  int
	LastError     string // of the last failed attempt; of a dead message, the reason
	CMSStatus     int    // of the last attempt
	NextAttemptAt time.Time
	FinishedAt    time.Time // when the stage became final
	SupersededBy  string    // id
	// VersionWarning is why the delivered version of this message, or of the one that superseded it, is beyond
	// reason; "" = it is plausible. See Version.DescribeJump.
	VersionWarning string
	ErasedAt       time.Time // when its content was erased on demand; zero = it was not
	ReplayAskedAt  time.Time // time of the last request for a replay, also of a refused one; zero = never
	ReplayForced   bool      // the request was forced: later deliveries do not refuse it
	ReplayRefused  string    // reason for the refusal of the last request
	DiscardAskedAt time.Time // time of the first request to discard it; zero = never
	DiscardReason  string    // of a discarded message: the operator's reason; empty = none was given
	DiedAt         time.Time // of a discarded message: when it had become dead
	EditedAt       time.Time // time of the last edit; zero = never
	EditNote       string    // the operator's note
	Held           bool      // it waits for its retry, or behind another message of its key that does
	Version        string    // of this state, for ETags
}

// Tag returns the strong ETag for clients of a Version, which may be a weak ETag of storage.
func Tag(version string) string {
	return strconv.Quote(strings.NewReplacer(`"`, "", `\`, "", "W/", "").Replace(version))
}
