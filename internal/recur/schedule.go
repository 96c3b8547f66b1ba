package recur

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Overlap is the treatment of an occurrence that is due while the schedule's last message is not
// final.
type Overlap string

// The ways to treat an overlap.
const (
	Queue Overlap = "queue" // the occurrence becomes a message
	Skip  Overlap = "skip"  // the occurrence does not become a message, and counts in State.Skipped
)

// Missed is the treatment of missed occurrences. An occurrence is missed if no process handles it
// within Grace after its due time.
type Missed string

// The ways to treat missed occurrences.
const (
	One  Missed = "one"  // the last missed occurrence becomes a message
	All  Missed = "all"  // each missed occurrence becomes a message
	None Missed = "none" // no missed occurrence becomes a message
)

// Definition is the part of a schedule that a user writes.
type Definition struct {
	Cron        string // five or six fields, a descriptor, or @every
	TimeZone    string // IANA name
	Message     []byte // XML, with {{.DueAt}} and {{.Run}}
	ContentType string // content type of the message
	// id of the stored message that Message was copied from; empty = not copied
	CopiedFrom string    `json:"-"`
	Overlap    Overlap   // empty = Queue
	Missed     Missed    // empty = One
	Paused     bool      // no occurrence becomes a message
	Start      time.Time // occurrences before Start are left out; zero = no limit
	End        time.Time // occurrences at or after End are left out; zero = no limit
}

func (d Definition) withDefaults() Definition {
	if d.TimeZone == "" {
		d.TimeZone = "UTC"
	}

	if d.ContentType == "" {
		d.ContentType = "application/xml"
	}

	if d.Overlap == "" {
		d.Overlap = Queue
	}

	if d.Missed == "" {
		d.Missed = One
	}

	d.Start, d.End = toUTC(d.Start), toUTC(d.End)

	return d
}

// hashVersion returns the version of a definition: a hash of all fields except CopiedFrom.
func (d Definition) hashVersion() string {
	data, err := json.Marshal(d)
	if err != nil {
		// a defect of Weir: strings, bytes and times up to the year 9999 can always be encoded
		panic(err)
	}

	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Filed is an occurrence that became a message.
type Filed struct {
	DueAt     time.Time
	Run       int64
	MessageID string // empty if the log already had a message of this occurrence, with another body
	At        time.Time
}

// State is the progress of a schedule.
type State struct {
	// due time of the next occurrence; zero = the schedule is paused or has ended
	NextAt    time.Time
	NextRun   int64     // number of the next occurrence
	Runs      int64     // highest number assigned so far; NextRun counts as assigned
	Anchor    time.Time // time from which @every counts
	SettledAt time.Time // due time of the last occurrence that was handled
	// the next occurrence is appended however late it is, and replaces all missed ones
	CatchUp   bool
	Last      Filed     // the last occurrence that became a message
	SkippedAt time.Time // due time of the last occurrence that was skipped

	Filed   int64  // occurrences that became a message
	Skipped int64  // occurrences that did not become a message because of Overlap
	Missed  int64  // missed occurrences that did not become a message
	Refused int64  // occurrences whose message broke a rule of its contract, or could not be read
	Refusal string // reason of the last refusal

	Calls string // the last calls of Run; see runCalls
}

// Schedule is a definition with its state.
type Schedule struct {
	Name string
	Definition
	State
	Version   string // version of the definition, for ETags
	CreatedAt time.Time
	ChangedAt time.Time

	// creationID is a random text that is made once, when the schedule is created. It is part of
	// the idempotency key of each message of the schedule, because a schedule that was deleted and
	// created again under its name is another schedule.
	creationID string

	etag    storage.ETag
	columns map[string]any // the columns of the row that have the message, or the name of its blob
	// why storage does not return the message; nil = the message was read; see Store.find
	unread error
}

// Unread returns the reason why the schedule has no message: storage does not return it. For any
// other schedule it returns "".
func (s Schedule) Unread() string {
	if s.unread == nil {
		return ""
	}
	return refusalText(s.unread)
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// CheckName returns an error of kind Malformed if the name of a schedule is not valid.
func CheckName(name string) error {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return &weir.Error{Kind: weir.Malformed, Op: "schedule",
			Message: "a schedule's name has 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen"}
	}
	return nil
}

// idempotencyKey returns the idempotency key of a message of the schedule. The parameter message is
// unique among the messages of this creation.
func (s Schedule) idempotencyKey(message string) string {
	return s.Name + "@" + s.creationID + "@" + message
}

// Condition restricts a change of a schedule, as If-Match and If-None-Match do. The zero value
// allows every change.
type Condition struct {
	// the stored version must be one of these; "*" = any version; nil = no condition
	Versions  []string
	NotExists bool // the schedule must not exist
}

// checkVersion returns Stale if the present version of a schedule does not meet the condition. An
// empty version means that the schedule does not exist.
func (c Condition) checkVersion(version string) error {
	refuse := func(message string) error {
		return &weir.Error{Kind: weir.Stale, Op: "schedule", Message: message}
	}
	if c.NotExists && version != "" {
		return refuse("there is a schedule of this name already")
	}
	if len(c.Versions) == 0 {
		return nil
	}

	for _, v := range c.Versions {
		if version != "" && (v == "*" || v == version) {
			return nil
		}
	}

	return refuse("the schedule is not the one that If-Match names: read it again")
}

func toUTC(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
