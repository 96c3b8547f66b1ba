// Package weir has the types that all packages share: messages, stages, outcomes, ids and error
// kinds. It does no I/O, and imports no other package of Weir.
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
	Discarded  Stage = "discarded" // an operator gave up the dead message for good
)

// Final reports whether the stage is final: Weir does not change it by itself. An operator can
// still replay or discard a dead message.
func (s Stage) Final() bool {
	return s == Delivered || s == Dead || s == Cancelled || s == Superseded || s == Discarded
}

// Message is a message of an upstream, with its place in a lane.
type Message struct {
	ID       ID     // id of its current place in a lane; zero before the append
	Origin   ID     // the message's id in its first epoch; zero = the same as ID
	Contract string // name of its contract
	// name of the upstream that sent it; empty if the settings name no upstreams
	Upstream    string
	Key         string    // ordering key; empty if the contract has no key
	Version     string    // version in the body to send; empty if the contract has no path for it
	Supersede   bool      // newer versions of its key and contract supersede this message
	Skip        bool      // while it waits for a retry, later messages of its key are sent
	ContentType string    // type of the body to send
	TraceParent string    // W3C trace context of the upstream's request; empty or valid
	TraceState  string    // W3C tracestate; empty or valid, and empty without TraceParent
	Callback    string    // address that gets an event when the message is final; empty = none
	Batch       string    // id of the batch that it is a part of; empty = none
	BatchPart   int       // its place in the batch, from 1; 0 = no batch
	DueAt       time.Time // zero = due at once
	AcceptedAt  time.Time
	// the accepted or the edited body; nil if only the other fields were read
	Body    []byte
	Size    int // bytes of the body to send
	Edition int // number of edits by operators; 0 = the accepted body is sent
	Replays int // number of replays, with and without an edit
	// values of the body that lists show, by their names in the contract
	Shown map[string]string
}

// Public returns the id that the upstream got. The id stays the same when a message moves to
// another epoch. The Idempotency-Key that the CMS gets begins with this id.
func (m *Message) Public() ID {
	if m.Origin.IsZero() {
		return m.ID
	}
	return m.Origin
}

// TraceID returns the id of the message's trace, or "".
func (m *Message) TraceID() string {
	if parts := strings.Split(m.TraceParent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}

// Outcome classifies the result of an attempt.
type Outcome string

// The outcomes of an attempt. An attempt that counts raises Status.AttemptCount.
const (
	OutcomeDelivered Outcome = "delivered"
	OutcomeRetry     Outcome = "retry"    // the attempt failed; the message may be tried again
	OutcomeRejected  Outcome = "rejected" // another attempt would fail, too
	// the CMS failed, not the message; the attempt usually does not count
	OutcomeUnavailable Outcome = "unavailable"
	// Weir cut the attempt off; the attempt does not count
	OutcomeNone Outcome = "none"
)

// Delivery describes an attempt that is to be made.
type Delivery struct {
	Message *Message
	Fence   int64 // rises each time the lane gets a new holder
	Attempt int   // number of the attempt, from 1
	// the CMS's id of the key's item, which an earlier attempt learned; empty = none
	RememberedID string
	// Hide returns a text without the redacted values of the message; nil = the message has none.
	// The attempt calls it for each text of the result before it cuts the text.
	Hide func(text string) string
	// Since is the earliest time at which the attempt could start. It is the latest of four times:
	// the acceptance, the due time, the last request for a replay, and the end of the previous
	// attempt.
	Since time.Time
}

// HideValues returns a text without the redacted values of the message; see Hide.
func (d *Delivery) HideValues(text string) string {
	if d.Hide == nil {
		return text
	}
	return d.Hide(text)
}

// Result is the result of an attempt.
type Result struct {
	Outcome    Outcome
	Status     int           // the CMS's HTTP status; 0 = no answer
	Reason     string        // one line for people: the CMS's text or the error
	Body       string        // the first 2 KiB of the answer
	RetryAfter time.Duration // Retry-After of the CMS, at most an hour; 0 = none
	// the CMS can still be working on the request, so the settle time must pass
	Unanswered bool
	// Outcome is unavailable, and perhaps the CMS refuses only this message, as by a 403
	Refused bool
	Unsent  bool // Weir sent no request, so the result shows nothing about the CMS
	// Weir itself failed, perhaps after a request; it shows nothing about the CMS
	IsOwnFault bool
	StartedAt  time.Time
	Duration   time.Duration
	// the CMS's id of the key's item, which this attempt learned; empty = it learned none
	RememberedID string
	// Weir must forget Delivery.RememberedID, because the CMS no longer has the item
	IsForgotten bool
	Steps       []Step // requests of a chain; nil = a single request
}

// Step is the record of one request of a chain.
type Step struct {
	Name     string        `json:"name"`
	At       time.Time     `json:"-"`        // for the trace only
	Duration time.Duration `json:"duration"` // nanoseconds
	Status   int           `json:"status,omitempty"`
	// why the chain began again after this step; empty = no restart
	Reason string `json:"reason,omitempty"`
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
	Unsent   bool          `json:"unsent,omitempty"` // Weir sent no request
	Steps    []Step        `json:"steps,omitempty"`
}

// Status is the state of a message, with its attempts.
type Status struct {
	Message       Message
	Stage         Stage
	Attempts      []Attempt // if there are more than twenty, only the first ten and the last ten
	AttemptCount  int       // number of attempts that counted
	LastError     string    // reason of the last attempt that did not deliver
	CMSStatus     int       // the CMS's HTTP status in the last attempt; 0 = no answer
	NextAttemptAt time.Time // zero = the message waits for no retry
	// FirstFailedAt is the time at which the first counted attempt since the last replay began that
	// failed; zero = there was none.
	FirstFailedAt time.Time
	// until this time failed attempts do not make the message dead; zero = no such time
	RetryUntil   time.Time
	FinishedAt   time.Time // time at which the stage became final; zero = the stage is not final
	SupersededBy string    // public id of the message that superseded it; empty = none
	// VersionWarning is the reason why the delivered version is suspicious; "" = the version is
	// plausible. The delivered version is that of this message, or of the message that superseded
	// it. See Version.DescribeJump.
	VersionWarning string
	// time at which the message's content was erased on demand; zero = never
	ErasedAt time.Time
	// time of the last request for a replay, even if it was refused; zero = never
	ReplayAskedAt time.Time
	// the last request for a replay is valid even after later deliveries of the key
	ReplayForced   bool
	ReplayRefused  string    // reason why the last request for a replay was refused
	DiscardAskedAt time.Time // time of the last request to discard the message; zero = never
	// the operator's reason for discarding the message; empty = none was given
	DiscardReason string
	// time at which a discarded message had become dead; zero = not discarded
	DiedAt   time.Time
	EditedAt time.Time // time of the last edit; zero = never
	EditNote string    // the operator's note on the last edit
	Held     bool      // the message is held: it waits in a block, not in the log
	Version  string    // version of this state, for ETags
}

// Tag returns a strong ETag for clients. version is the Version of a Status or of another resource,
// and can be a weak ETag of storage.
func Tag(version string) string {
	return strconv.Quote(strings.NewReplacer(`"`, "", `\`, "", "W/", "").Replace(version))
}
