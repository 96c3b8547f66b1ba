package replay

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"weir/internal/lane"
	"weir/internal/weir"
)

// State says how a job stands.
type State string

// The states of a job. All but the first are final.
const (
	Running   State = "running"
	Done      State = "done"      // everything it asked for came to an end
	Stopped   State = "stopped"   // too much of it died again
	Cancelled State = "cancelled" // by request
)

// Filter says which dead messages are meant: those for which everything that is given holds.
type Filter struct {
	Key         string    `json:"key,omitempty"`
	Lane        *int      `json:"lane,omitempty"`
	Contract    string    `json:"contract,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"` // of the failure, see weir.Fingerprint
	From        time.Time `json:"from,omitzero"`         // dead since then
	To          time.Time `json:"to,omitzero"`           // dead before
}

// matches says whether a dead message is meant.
func (f Filter) matches(d lane.DeadRow) bool {
	if f.Key != "" && d.Key != f.Key || f.Contract != "" && d.Contract != f.Contract ||
		d.DiedAt.Before(f.From) || !f.To.IsZero() && !d.DiedAt.Before(f.To) {
		return false
	}
	if f.Fingerprint == "" {
		return true
	}
	fingerprint, _ := weir.Fingerprint(d.Contract, d.CMSStatus, d.Reason)
	return fingerprint == f.Fingerprint
}

// lanes are those in which there can be messages that are meant.
func (f Filter) lanes(n int) []int {
	if f.Key != "" {
		of := lane.Of(f.Key, n)
		if f.Lane != nil && *f.Lane != of {
			return nil
		}
		return []int{of}
	}
	if f.Lane != nil {
		return []int{*f.Lane}
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Spec is what is asked for.
type Spec struct {
	Filter          Filter
	RatePerMinute   int
	StopAtErrorRate float64 // 0 to 1
	Force           bool    // also what a later message of its key was delivered after
	Reason          string
}

const (
	// DefaultRate is how many messages a minute are replayed where nothing is said.
	DefaultRate = 60
	maxRate     = 6000
	// DefaultErrorRate is the share of messages that are dead again at which a job stops.
	DefaultErrorRate = 0.5
	// maxName is the size of a key, or of a contract's name.
	maxName = 1 << 10
)

// check says what is wrong with a Spec, all of it.
func (s Spec) check(lanes int) error {
	var problems []weir.Problem
	add := func(wrong bool, path, message string) {
		if wrong {
			problems = append(problems, weir.Problem{Path: path, Message: message})
		}
	}
	f := s.Filter
	add(f.Lane != nil && (*f.Lane < 0 || *f.Lane >= lanes), "filter.lane", fmt.Sprintf("is a number from 0 to %d", lanes-1))
	add(!told(f.From), "filter.from", "lies outside the years 0 to 9999")
	add(!told(f.To), "filter.to", "lies outside the years 0 to 9999")
	add(!f.To.IsZero() && !f.From.Before(f.To), "filter.to", "is not later than filter.from")
	add(f.Fingerprint != "" && !fingerprints.MatchString(f.Fingerprint), "filter.fingerprint", "is twelve hexadecimal digits, as the list of errors has it")
	add(s.RatePerMinute < 1 || s.RatePerMinute > maxRate, "ratePerMinute", fmt.Sprintf("is a number from 1 to %d", maxRate))
	add(!(s.StopAtErrorRate >= 0 && s.StopAtErrorRate <= 1), "stopAtErrorRate", "is a number from 0 to 1")
	add(utf8.RuneCountInString(s.Reason) > weir.MaxReason, "reason", fmt.Sprintf("has more than %d characters", weir.MaxReason))
	add(len(f.Key) > maxName || len(f.Contract) > maxName, "filter", fmt.Sprintf("has a key or a contract of more than %d bytes", maxName))
	if len(problems) > 0 {
		return &weir.Error{Kind: weir.Invalid, Op: "replays", Message: "this cannot be replayed", Problems: problems}
	}
	return nil
}

// told says whether a moment can be written down: in UTC, JSON has only those years.
func told(t time.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

var fingerprints = regexp.MustCompile(`^[0-9a-f]{12}$`)

// Job is a bulk replay as users see it.
type Job struct {
	ID              string    `json:"id"`
	State           State     `json:"state"`
	Reason          string    `json:"reason,omitempty"`
	Filter          Filter    `json:"filter"`
	RatePerMinute   int       `json:"ratePerMinute"`
	StopAtErrorRate float64   `json:"stopAtErrorRate"`
	Force           bool      `json:"force"`
	Matched         int64     `json:"matched"`   // dead when it began
	Replayed        int64     `json:"replayed"`  // of those: asked to be delivered after all
	Refused         int64     `json:"refused"`   // not replayed, for a later one of the key was delivered
	Skipped         int64     `json:"skipped"`   // not dead any more when their turn came
	Delivered       int64     `json:"delivered"` // of those replayed
	DeadAgain       int64     `json:"deadAgain"`
	Otherwise       int64     `json:"otherwise"` // cancelled, superseded or removed
	Waiting         int64     `json:"waiting"`   // not final yet
	StartedAt       time.Time `json:"startedAt"`
	UpdatedAt       time.Time `json:"updatedAt"`
	FinishedAt      time.Time `json:"finishedAt,omitzero"`
	StopReason      string    `json:"stopReason,omitempty"`
}

func newJob(s Spec, now time.Time) Job {
	now = now.UTC().Truncate(time.Microsecond)
	return Job{ID: newID(now), State: Running, Reason: s.Reason, Filter: s.Filter, RatePerMinute: s.RatePerMinute,
		StopAtErrorRate: s.StopAtErrorRate, Force: s.Force, StartedAt: now, UpdatedAt: now}
}

// minOutcomes is how many outcomes there must be before a job stops for their sake.
const minOutcomes = 10

// failing tells why a job is to stop; "" = it is not.
func (j *Job) failing() string {
	outcomes := j.Delivered + j.DeadAgain
	if outcomes < minOutcomes || j.DeadAgain == 0 || float64(j.DeadAgain) < j.StopAtErrorRate*float64(outcomes) {
		return ""
	}
	return fmt.Sprintf("%d of %d were dead again", j.DeadAgain, outcomes)
}

// lastMilli is the last moment an id can tell: in the year 2286.
const lastMilli = 9999999999999

// newID names a job. It begins with the time left until lastMilli, so that the newest one
// sorts first.
func newID(now time.Time) string {
	random := make([]byte, 4)
	rand.Read(random) // never fails: crypto/rand ends the program instead
	return idsUntil(now) + hex.EncodeToString(random)
}

// idsUntil is what the ids of this moment begin with; those of later ones sort before it.
func idsUntil(t time.Time) string { return fmt.Sprintf("%013d", lastMilli-t.UnixMilli()) }

var ids = regexp.MustCompile(`^[0-9]{13}[0-9a-f]{8}$`)
