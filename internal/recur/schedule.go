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

// Overlap decides about an occurrence that is due while the message of the last one is not final.
type Overlap string

// The ways to treat an overlap.
const (
	Queue Overlap = "queue" // it is filed, and waits behind the last one
	Skip  Overlap = "skip"  // it is left out, and counted
)

// Missed decides about the occurrences that were due while no process ran.
type Missed string

// The ways to make up for missed occurrences.
const (
	One  Missed = "one"  // one message, for the last of them
	All  Missed = "all"  // one message for each
	None Missed = "none" // no message
)

// Definition is the part of a schedule that a user writes.
type Definition struct {
	Cron        string    // five or six fields, a descriptor, or @every
	TimeZone    string    // IANA name
	Message     []byte    // XML, with {{.DueAt}} and {{.Run}}
	ContentType string    // of the message
	CopiedFrom  string    `json:"-"` // id of the stored message it was taken from; empty = given
	Overlap     Overlap   // empty = Queue
	Missed      Missed    // empty = One
	Paused      bool      // no occurrence is due
	Start       time.Time // no occurrence before it; zero = none
	End         time.Time // no occurrence at it or later; zero = none
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

// hashVersion returns the version of a definition: a hash of its content, so the same content again
// is no change.
func (d Definition) hashVersion() string {
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
	MessageID string // empty if it was filed with an earlier message text
	At        time.Time
}

// State is the progress of a schedule.
type State struct {
	NextAt    time.Time // of the next occurrence; zero = paused, or over
	NextRun   int64     // its number
	Runs      int64     // numbers assigned so far, including NextRun
	Anchor    time.Time // time from which @every counts
	SettledAt time.Time // due time of the last occurrence that was processed
	CatchUp   bool      // the next occurrence stands for all that were missed
	Last      Filed     // the last occurrence that became a message
	SkippedAt time.Time // due time of the last occurrence that was skipped

	Filed   int64  // occurrences that became a message
	Skipped int64  // left out because of an overlap
	Missed  int64  // due while no process ran, and not filed later
	Refused int64  // occurrences whose message broke a rule of its contract
	Refusal string // reason of the last refusal
}

// Schedule is a definition with its state.
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

// CheckName returns an error if no schedule may have this name.
func CheckName(name string) error {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return &weir.Error{Kind: weir.Malformed, Op: "schedule",
			Message: "a schedule's name has 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen"}
	}
	return nil
}

// Condition must hold for a schedule to be changed; zero = no condition.
type Condition struct {
	Versions  []string // the version is one of these; "*" = any
	NotExists bool     // no schedule has this name yet
}

// checkVersion compares c with the present version; empty = there is no schedule.
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
