package wire

import "time"

// JobState is the state of a bulk replay.
type JobState string

// The states of a bulk replay. All except the first are final.
const (
	JobRunning   JobState = "running"
	JobDone      JobState = "done"      // all its messages are final
	JobStopped   JobState = "stopped"   // too many of its messages died again
	JobCancelled JobState = "cancelled" // a user cancelled it
)

// Job is a bulk replay. The job's row in storage has the same form.
type Job struct {
	ID              string    `json:"id"`
	State           JobState  `json:"state"`
	Reason          string    `json:"reason,omitempty"`
	Filter          JobFilter `json:"filter"`
	RatePerMinute   int       `json:"ratePerMinute"`
	StopAtErrorRate float64   `json:"stopAtErrorRate"`
	Force           bool      `json:"force"`
	Matched         int64     `json:"matched"`   // messages that were dead when the job began
	Replayed        int64     `json:"replayed"`  // those of Matched whose replay was requested
	Refused         int64     `json:"refused"`   // not replayed, because a later message of the key was delivered
	Skipped         int64     `json:"skipped"`   // not replayed, because they were no longer dead by then
	Delivered       int64     `json:"delivered"` // those of Replayed that were delivered
	DeadAgain       int64     `json:"deadAgain"`
	Otherwise       int64     `json:"otherwise"` // those of Replayed that ended in another way, or were removed
	Waiting         int64     `json:"waiting"`   // those of Replayed that are not final yet
	StartedAt       time.Time `json:"startedAt"`
	UpdatedAt       time.Time `json:"updatedAt"`
	FinishedAt      time.Time `json:"finishedAt,omitzero"`
	StopReason      string    `json:"stopReason,omitempty"`
}

// IsRunning reports whether the bulk replay is still running.
func (j Job) IsRunning() bool { return j.State == JobRunning }

// CountFinal returns the number of the job's messages that are final.
func (j Job) CountFinal() int64 {
	return j.Delivered + j.DeadAgain + j.Otherwise + j.Refused + j.Skipped
}

// JobFilter selects the dead messages that match every set field.
type JobFilter struct {
	Key         string    `json:"key,omitempty"`
	Lane        *int      `json:"lane,omitempty"`
	Contract    string    `json:"contract,omitempty"`
	Fingerprint string    `json:"fingerprint,omitempty"` // fingerprint of the failure, see weir.Fingerprint
	From        time.Time `json:"from,omitzero"`         // died at this time or later
	To          time.Time `json:"to,omitzero"`           // died before this time
}

// JobPlan has the numbers of a bulk replay that is not started.
type JobPlan struct {
	Count            int64   `json:"count"`    // number of messages that match
	Complete         bool    `json:"complete"` // all dead messages were read; false = the numbers are too low
	EstimatedSeconds float64 `json:"estimatedSeconds"`
	Keys             int64   `json:"keys"`
	Refused          int64   `json:"refused"` // they would be refused, because a later message of the key was delivered
}
