package wire

import "time"

// JobState is the state of a bulk replay.
type JobState string

// The states of a bulk replay. All except the first are final.
const (
	JobRunning   JobState = "running"
	JobDone      JobState = "done"      // all messages of the bulk replay are final
	JobStopped   JobState = "stopped"   // too many of the replayed messages died again
	JobCancelled JobState = "cancelled" // an operator cancelled the bulk replay
)

// Job is a bulk replay. The job's row in storage has the same form.
type Job struct {
	ID              string    `json:"id"`
	State           JobState  `json:"state"`
	Reason          string    `json:"reason,omitempty"`
	Filter          JobFilter `json:"filter"`
	RatePerMinute   int       `json:"ratePerMinute"`
	StopAtErrorRate float64   `json:"stopAtErrorRate"` // the job stops if this share of messages dies again, 0 to 1
	Force           bool      `json:"force"`           // replay even if a later message of the key was delivered
	Matched         int64     `json:"matched"`         // messages that matched Filter when the job began
	Replayed        int64     `json:"replayed"`        // those of Matched whose replay was requested and not refused
	Refused         int64     `json:"refused"`         // messages not replayed because of a later delivery of the key
	Skipped         int64     `json:"skipped"`         // messages that were no longer dead when the job reached them
	Delivered       int64     `json:"delivered"`       // those of Replayed that were delivered
	DeadAgain       int64     `json:"deadAgain"`       // those of Replayed that died again
	Otherwise       int64     `json:"otherwise"`       // those of Replayed that ended in another way, or were removed
	Waiting         int64     `json:"waiting"`         // those of Replayed that are not final yet
	StartedAt       time.Time `json:"startedAt"`
	UpdatedAt       time.Time `json:"updatedAt"`
	FinishedAt      time.Time `json:"finishedAt,omitzero"`
	StopReason      string    `json:"stopReason,omitempty"` // why the job was stopped; "" = not stopped
}

// IsRunning reports whether the bulk replay is still running.
func (j Job) IsRunning() bool { return j.State == JobRunning }

// CountFinal returns the number of matched messages for which the job has nothing left to do.
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

// JobPlan is the preview of a bulk replay. If Complete is false, Count, Keys and Refused can be too low.
type JobPlan struct {
	Count            int64   `json:"count"`            // number of messages that match
	Complete         bool    `json:"complete"`         // all dead messages were read, and all that match were checked
	EstimatedSeconds float64 `json:"estimatedSeconds"` // estimated duration of the bulk replay
	Keys             int64   `json:"keys"`             // number of different keys of the messages that match
	Refused          int64   `json:"refused"`          // those of Count whose replay would be refused; see Job.Refused
	// MissingContract is the number of those of Count whose contract the settings lack. After a replay they wait.
	MissingContract int64 `json:"missingContract,omitempty"`
}
