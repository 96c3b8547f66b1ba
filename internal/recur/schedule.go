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

// Overlap is the treatment of an occurrence that is due while the last message of the schedule is not final.
type Overlap string

// The ways to treat an overlap.
const (
	Queue Overlap = "queue" // the occurrence is filed; its message waits behind the earlier message
	Skip  Overlap = "skip"  // the occurrence is not filed, and counted in State.Skipped
)

// Missed is the treatment of missed occurrences: those that were due while no process ran; see Grace.
type Missed string

// The ways to make up for missed occurrences.
const (
	One  Missed = "one"  // the last missed occurrence becomes a message
	All  Missed = "all"  // each missed occurrence becomes a message
	None Missed = "none" // no missed occurrence becomes a message
)

// Definition is the part of a schedule that a user writes.
type Definition struct {
	Cron        string    // five or six fields, a descriptor, or @every
	TimeZone    string    // IANA name
	Message     []byte    // XML, with {{.DueAt}} and {{.Run}}
	ContentType string    // content type of the message
	CopiedFrom  string    `json:"-"` // id of the stored message that Message was copied from; empty = not copied
	Overlap     Overlap   // empty = Queue
	Missed      Missed    // empty = One
	Paused      bool      // no occurrence is due
	Start       time.Time // earlier occurrences are left out; zero = no limit
	End         time.Time // occurrences at or after End are left out; zero = no limit
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

// hashVersion returns the version of a definition: a hash of its fields except CopiedFrom. So a Put of the same fields
// changes nothing.
func (d Definition) hashVersion() string {
	data, err := json.Marshal(d)
	if err != nil {
		panic(err) // a defect of Weir: strings, bytes and times up to the year 9999 can always be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// Filed is an occurrence that became a message.
type Filed struct {
	DueAt     time.Time
	Run       int64
	MessageID string // empty = the occurrence was filed with another message text
	At        time.Time
}

// State is the progress of a schedule.
type State struct {
	NextAt    time.Time // due time of the next occurrence; zero = paused, or over
	NextRun   int64     // number of the next occurrence
	Runs      int64     // numbers assigned so far, including NextRun
	Anchor    time.Time // time from which @every counts
	SettledAt time.Time // due time of the last occurrence that was processed
	CatchUp   bool      // the next occurrence replaces all missed occurrences
	Last      Filed     // the last occurrence that became a message
	SkippedAt time.Time // due time of the last occurrence that was skipped

	Filed   int64  // occurrences that became a message
	Skipped int64  // occurrences that were not filed because of an overlap
	Missed  int64  // occurrences that were due while no process ran, and were not filed later
	Refused int64  // occurrences whose message broke a rule of its contract
	Refusal string // reason of the last refusal
}

// Schedule is a definition with its state.
type Schedule struct {
	Name string
	Definition
	State
	Version   string // version of the definition, for ETags
	CreatedAt time.Time
	ChangedAt time.Time

	etag    storage.ETag
	columns map[string]any // columns of the message
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// CheckName returns an error if no schedule may have this name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return &weir.Error{Kind: weir.Malformed, Op: "schedule",
			Message: "a schedule's name has 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen"}
	}
	return nil
}

// Condition is the condition under which a schedule may be changed; the zero value allows every change.
type Condition struct {
	Versions  []string // the stored version must be one of these; "*" = any version; nil = no condition
	NotExists bool     // no schedule may have the name yet
}

// checkVersion returns Stale if the present version of a schedule does not meet the condition. An empty version means
// that there is no schedule.
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

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
