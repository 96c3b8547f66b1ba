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

// Overlap says what happens to an occurrence while the message of the last one is not
// final.
type Overlap string

// The ways to treat an overlap.
const (
	Queue Overlap = "queue" // it is filed all the same
	Skip  Overlap = "skip"  // it is left out, and counted
)

// Missed says what happens to the occurrences that were due while nothing ran.
type Missed string

// The ways to make up for what was missed.
const (
	One  Missed = "one"  // one message, for the last of them
	All  Missed = "all"  // one message for each
	None Missed = "none" // nothing
)

// Definition is what a user says about a schedule.
type Definition struct {
	Cron        string    // five or six fields, a descriptor, or @every
	TimeZone    string    // IANA name
	Message     []byte    // XML, with {{.DueAt}} and {{.Run}}
	ContentType string    // of the message
	CopiedFrom  string    `json:"-"` // id of the stored message it was taken from; empty = given
	Overlap     Overlap   // empty = Queue
	Missed      Missed    // empty = One
	Paused      bool      // nothing is due
	Start       time.Time // no occurrence before it; zero = none
	End         time.Time // no occurrence at it or later; zero = none
}

// withDefaults fills in what the user left out.
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
	d.Start, d.End = utc(d.Start), utc(d.End)
	return d
}

// version names a definition by its content: the same one again is no change.
func (d Definition) version() string {
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings, times up to 9999 and bytes always encode
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Filed is an occurrence that became a message.
type Filed struct {
	DueAt     time.Time
	Run       int64
	MessageID string // empty where it was filed with an earlier text
	At        time.Time
}

// State is what a schedule has come to.
type State struct {
	NextAt    time.Time // of the next occurrence; zero = paused, or over
	NextRun   int64     // its number
	Runs      int64     // numbers given out, the next one's included
	Anchor    time.Time // what @every counts from
	SettledAt time.Time // due time of the last occurrence that was settled
	CatchUp   bool      // the next occurrence stands for all that were missed
	Last      Filed     // the last occurrence that became a message
	SkippedAt time.Time // due time of the last one that was skipped

	Filed   int64  // occurrences that became a message
	Skipped int64  // left out because of an overlap
	Missed  int64  // due while nothing ran, and not made up for
	Refused int64  // whose message broke a rule of its contract
	Refusal string // why the last refused one was
}

// Schedule is a definition and what has come of it.
type Schedule struct {
	Name string
	Definition
	State
	Version   string // of the definition, for ETags
	CreatedAt time.Time
	ChangedAt time.Time

	etag    storage.ETag
	columns map[string]any // of the message
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// CheckName says whether a schedule may have this name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return &weir.Error{Kind: weir.Malformed, Op: "schedule", Message: "a schedule's name has 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen"}
	}
	return nil
}

// Condition is what must hold for a schedule to be changed; zero = nothing.
type Condition struct {
	Versions  []string // its version is one of these; "*" = any
	NotExists bool     // there is none of this name yet
}

// check compares with the version there is; empty = there is no such schedule.
func (c Condition) check(version string) error {
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

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
