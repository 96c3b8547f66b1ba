package replay

import (
	"fmt"
	"time"
	"unicode/utf8"

	"weir/internal/job"
	"weir/internal/lane/lists"
	"weir/internal/weir"
	"weir/internal/wire"
)

// The JSON forms of jobs, in the API's answers and in storage.
type (
	// Job is a bulk replay.
	Job = wire.Job
	// State is the state of a job.
	State = wire.JobState
	// Filter selects the dead messages of a job.
	Filter = wire.JobFilter
)

// The states of a job. All except Running are final.
const (
	Running   = wire.JobRunning
	Done      = wire.JobDone
	Stopped   = wire.JobStopped
	Cancelled = wire.JobCancelled
)

// selectionOf returns the selection of a job's filter.
func selectionOf(f Filter) *lists.Selection {
	return &lists.Selection{Key: f.Key, Lane: f.Lane, Contract: f.Contract,
		Fingerprint: f.Fingerprint, From: f.From, To: f.To}
}

// Spec describes a job to start.
type Spec struct {
	Filter        Filter
	RatePerMinute int // number of messages that the job replays per minute, 1 to maxRate
	// 0 to 1; the job stops if this share of its replayed messages died again
	StopAtErrorRate float64
	Force           bool // replay a message even if a later message of its key was delivered
	Reason          string
}

const (
	// DefaultRate is the number of messages that a job replays per minute if the request names no
	// rate.
	DefaultRate = 60
	maxRate     = 6000
	// DefaultErrorRate is the value of Spec.StopAtErrorRate if the request names none.
	DefaultErrorRate = 0.5
	// maxNameSize limits the size of a key, and of a contract's name, in bytes.
	maxNameSize = 1 << 10
)

// checkSpec returns an error that lists all problems of the Spec.
func (s Spec) checkSpec(lanes int) error {
	var problems []weir.Problem
	add := func(wrong bool, path, message string) {
		if wrong {
			problems = append(problems, weir.Problem{Path: path, Message: message})
		}
	}

	f := s.Filter
	add(f.Lane != nil && (*f.Lane < 0 || *f.Lane >= lanes), "filter.lane",
		fmt.Sprintf("is a number from 0 to %d", lanes-1))
	add(!weir.HasJSONYear(f.From), "filter.from", "lies outside the years 0 to 9999")
	add(!weir.HasJSONYear(f.To), "filter.to", "lies outside the years 0 to 9999")
	add(!f.To.IsZero() && !f.From.Before(f.To), "filter.to", "is not later than filter.from")
	add(f.Fingerprint != "" && !lists.IsFingerprint(f.Fingerprint), "filter.fingerprint",
		"is twelve hexadecimal digits, as the list of errors has it")
	add(s.RatePerMinute < 1 || s.RatePerMinute > maxRate, "ratePerMinute",
		fmt.Sprintf("is a number from 1 to %d", maxRate))
	add(!(s.StopAtErrorRate >= 0 && s.StopAtErrorRate <= 1), "stopAtErrorRate",
		"is a number from 0 to 1")
	add(utf8.RuneCountInString(s.Reason) > weir.MaxReason, "reason",
		fmt.Sprintf("has more than %d characters", weir.MaxReason))
	add(len(f.Key) > maxNameSize || len(f.Contract) > maxNameSize, "filter",
		fmt.Sprintf("has a key or a contract of more than %d bytes", maxNameSize))

	if len(problems) > 0 {
		return &weir.Error{Kind: weir.Invalid, Op: "replays", Message: "this cannot be replayed",
			Problems: problems}
	}

	return nil
}

func newJob(s Spec, now time.Time) Job {
	now = now.UTC().Truncate(time.Microsecond)
	return Job{ID: job.NewID(now, randomBytes), State: Running, Reason: s.Reason, Filter: s.Filter,
		RatePerMinute:   s.RatePerMinute,
		StopAtErrorRate: s.StopAtErrorRate, Force: s.Force, StartedAt: now, UpdatedAt: now}
}

// minOutcomes is the number of messages that must be delivered or dead again before the error rate
// can stop a job.
const minOutcomes = 10

// stopReason returns the reason for which a job must stop, or "" if the job goes on.
func stopReason(j *Job) string {
	outcomes := j.Delivered + j.DeadAgain
	if outcomes < minOutcomes || j.DeadAgain == 0 ||
		float64(j.DeadAgain) < j.StopAtErrorRate*float64(outcomes) {
		return ""
	}
	return fmt.Sprintf("%d of %d were dead again", j.DeadAgain, outcomes)
}

// randomBytes is the number of random bytes of a job's id.
const randomBytes = 4
