// Package weir is the vocabulary: messages, stages, outcomes, ids and error kinds.
// It does no I/O and imports nothing of ours; every other package speaks in its words.
package weir

import (
	"strconv"
	"strings"
	"time"
)

// Stage says where a message stands.
type Stage string

// The stages of a message. The last four are final.
const (
	Scheduled  Stage = "scheduled"
	Queued     Stage = "queued"
	Retrying   Stage = "retrying"
	Delivered  Stage = "delivered"
	Dead       Stage = "dead"
	Cancelled  Stage = "cancelled"
	Superseded Stage = "superseded"
)

// Final reports whether nothing more happens to a message of this stage by itself.
func (s Stage) Final() bool {
	return s == Delivered || s == Dead || s == Cancelled || s == Superseded
}

// Message is what an upstream sent, and where it was filed. Once filed it never changes.
type Message struct {
	ID          ID        // where it stands; set when filed
	Origin      ID        // where it was first filed, if that is another place
	Contract    string    // name of the contract it matched
	Key         string    // ordering key; empty for contracts without one
	Version     string    // as found in the message; empty when the contract names none
	Supersede   bool      // newer versions of its key and contract replace it while it waits
	Skip        bool      // while it waits for a retry, later messages of its key go ahead
	ContentType string    // sent on as accepted
	TraceParent string    // W3C trace context of the upstream's request; empty or valid
	TraceState  string    // what tracing systems add to it; empty or valid, and empty without it
	Callback    string    // address that is told when it is final; empty = none
	DueAt       time.Time // zero = now
	AcceptedAt  time.Time
	Body        []byte // byte for byte as accepted; nil where only the rest was read
	Size        int    // bytes of the body
	Edition     int    // how often an operator gave it another body; 0 = it is as accepted
}

// Public is the id that the upstream was given, which also begins the CMS's Idempotency-Key. It
// stays the same wherever a message is moved.
func (m *Message) Public() ID {
	if m.Origin.IsZero() {
		return m.ID
	}
	return m.Origin
}

// TraceID is the trace that the message belongs to; empty = none.
func (m *Message) TraceID() string {
	if parts := strings.Split(m.TraceParent, "-"); len(parts) == 4 {
		return parts[1]
	}
	return ""
}

// Outcome is what an attempt came to.
type Outcome string

// The outcomes of an attempt.
const (
	OutcomeDelivered   Outcome = "delivered"
	OutcomeRetry       Outcome = "retry"       // the attempt counts, try again later
	OutcomeRejected    Outcome = "rejected"    // trying again will not help
	OutcomeUnavailable Outcome = "unavailable" // the CMS, not this message: nobody's attempt counts
	OutcomeNone        Outcome = "none"        // cut off by us: counts for nothing
)

// Delivery is one attempt to be made.
type Delivery struct {
	Message *Message
	Fence   int64     // rises each time the lane changes hands
	Attempt int       // from 1
	Since   time.Time // when it could have been made: when the message was accepted or due, or the attempt before ended
}

// Result is what came of an attempt.
type Result struct {
	Outcome    Outcome
	Status     int           // the CMS's HTTP status, 0 when it gave none
	Reason     string        // one line for people: the CMS's words or the error
	Body       string        // the first 2 KB of the answer
	RetryAfter time.Duration // as the CMS asked, 0 when it did not
	Unanswered bool          // sent, and it may still be at work inside the CMS: settle
	Refused    bool          // unavailable, by an answer that may be meant for this message alone (403)
	StartedAt  time.Time
	Duration   time.Duration
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
}

// Status is a message with all that has happened to it.
type Status struct {
	Message       Message
	Stage         Stage
	Attempts      []Attempt // the first and the last ten
	AttemptCount  int
	LastError     string // of the last attempt that failed; the reason when dead
	CMSStatus     int    // of the last attempt
	NextAttemptAt time.Time
	FinishedAt    time.Time // when the stage became final
	SupersededBy  string    // id
	Replays       int       // how often it was taken back from the dead
	ReplayAskedAt time.Time // when that was asked for last, whatever came of it; zero = never
	ReplayForced  bool      // and whether in spite of what was delivered since
	ReplayRefused string    // why the last one asked for was not done
	EditedAt      time.Time // when an operator gave it another body; zero = never
	EditNote      string    // and what for
	Held          bool      // it stands in its key's line, for its next attempt or behind another that waits for one
	Version       string    // of this state, for ETags
}

// Tag is a Version as clients know it: the strong ETag of what storage calls by a weak one.
func Tag(version string) string {
	return strconv.Quote(strings.NewReplacer(`"`, "", `\`, "", "W/", "").Replace(version))
}
