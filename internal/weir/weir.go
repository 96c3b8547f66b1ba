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

// Final reports whether only an operator can change the stage: an operator can replay or discard a dead
// message.
func (s Stage) Final() bool {
	return s == Delivered || s == Dead || s == Cancelled || s == Superseded || s == Discarded
}

// Message is a message of an upstream, with its place in a lane. It does not change after the append.
type Message struct {
	ID          ID        // its current place, which the append sets
	Origin      ID        // its first place, if that is not the current one
	Contract    string    // name of the contract that it matches
	Upstream    string    // name of the upstream that sent it; empty if the settings have none
	Key         string    // ordering key; empty if the contract has no key
	Version     string    // version in the body; empty if the contract has no path for it
	Supersede   bool      // newer versions of its key and contract may supersede it
	Skip        bool      // while it waits for a retry, later messages of its key are sent
	ContentType string    // type of the accepted body, which the CMS also gets
	TraceParent string    // W3C trace context of the upstream's request; empty or valid
	TraceState  string    // W3C tracestate; empty or valid, and empty without TraceParent
	Callback    string    // address that gets an event when the message is final; empty = none
	Batch       string    // id of the batch that it is a part of; empty = none
	BatchPart   int       // its place in the batch, from 1
	DueAt       time.Time // zero = due at once
	AcceptedAt  time.Time
	Body        []byte            // accepted body; nil if only the other fields were read
	Size        int               // bytes of the body
	Edition     int               // number of edits by operators; 0 = the accepted body
	Replays     int               // number of replays, with and without an edit
	Shown       map[string]string // values of the body for lists, by the names that the contract gives them
}

// Public returns the id that the upstream got. The CMS's Idempotency-Key begins with this id. It stays the same
// when a message moves to another epoch.
func (m *Message) Public() ID {
	if m.Origin.IsZero() {
		return m.ID
	}
	return m.Origin
}

// TraceID returns the id of the message's trace; empty = it has none.
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
	OutcomeRetry       Outcome = "retry"       // one of the limited attempts; the message is tried again
	OutcomeRejected    Outcome = "rejected"    // another attempt would fail, too
	OutcomeUnavailable Outcome = "unavailable" // the CMS failed, not the message; not one of the limited attempts
	OutcomeNone        Outcome = "none"        // Weir cut the attempt off; not one of the limited attempts
)

// Delivery is an attempt before it is made.
type Delivery struct {
	Message      *Message
	Fence        int64     // rises each time the lane gets a new holder
	Attempt      int       // number of the attempt, from 1
	RememberedID string    // the CMS's id of the key's item, which an earlier attempt learned; empty = none
	Since        time.Time // earliest possible start: the acceptance, the due time, or the end of the previous attempt
}

// Result is the result of an attempt.
type Result struct {
	Outcome      Outcome
	Status       int           // the CMS's HTTP status; 0 = no answer
	Reason       string        // one line for people: the CMS's text or the error
	Body         string        // the first 2 KB of the answer
	RetryAfter   time.Duration // Retry-After of the CMS; 0 = none
	Unanswered   bool          // the CMS may still work on the request, so the settle time must pass
	Refused      bool          // with the outcome unavailable: the answer may concern only this message (403)
	StartedAt    time.Time
	Duration     time.Duration
	RememberedID string // the CMS's id of the key's item, which this attempt learned; empty = it learned none
	IsForgotten  bool   // the CMS no longer has the item of Delivery.RememberedID
	Steps        []Step // requests of a chain; nil = a single request
}

// Step is the record of one request of a chain.
type Step struct {
	Name     string        `json:"name"`
	At       time.Time     `json:"-"`        // only for the trace
	Duration time.Duration `json:"duration"` // nanoseconds
	Status   int           `json:"status,omitempty"`
	Reason   string        `json:"reason,omitempty"` // the reason if the step started the chain again
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
	Attempts      []Attempt // the first attempt and the last ten
	AttemptCount  int
	LastError     string // error of the last failed attempt; if the message is dead, the reason
	CMSStatus     int    // status of the last attempt
	NextAttemptAt time.Time
	FinishedAt    time.Time // time at which the stage became final
	SupersededBy  string    // public id of that message
	// VersionWarning is the reason why a version is suspicious: the delivered version of this message, or the
	// version of the message that superseded it; "" = it is plausible. See Version.DescribeJump.
	VersionWarning string
	ErasedAt       time.Time // time at which its content was erased on demand; zero = it was not erased
	ReplayAskedAt  time.Time // time of the last request for a replay, also of a refused one; zero = never
	ReplayForced   bool      // the request was forced: later deliveries are no reason to refuse it
	ReplayRefused  string    // reason for the refusal of the last request
	DiscardAskedAt time.Time // time of the first request to discard it; zero = never
	DiscardReason  string    // the operator's reason for discarding it; empty = none was given
	DiedAt         time.Time // time at which a discarded message had become dead
	EditedAt       time.Time // time of the last edit; zero = never
	EditNote       string    // the operator's note
	Held           bool      // it waits for its retry, or behind another message of its key that waits for a retry
	Version        string    // version of this state, for ETags
}

// Tag returns the strong ETag for clients. It is made from the Version of a Status, which may be a weak ETag of
// storage.
func Tag(version string) string {
	return strconv.Quote(strings.NewReplacer(`"`, "", `\`, "", "W/", "").Replace(version))
}
