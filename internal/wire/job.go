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
	ID            string    `json:"id"`
	State         JobState  `json:"state"`
	Reason        string    `json:"reason,omitempty"`
	Filter        JobFilter `json:"filter"`
	RatePerMinute int       `json:"ratePerMinute"`
	// the job stops if this share of messages dies again, 0 to 1
	StopAtErrorRate float64 `json:"stopAtErrorRate"`
	// replay even if a later message of the key was delivered
	Force bool `json:"force"`
	// messages that matched Filter when the job began
	Matched int64 `json:"matched"`
	// those of Matched whose replay was requested and not refused
	Replayed int64 `json:"replayed"`
	// messages not replayed because of a later delivery of the key
	Refused int64 `json:"refused"`
	// messages that were no longer dead when the job reached them
	Skipped   int64 `json:"skipped"`
	Delivered int64 `json:"delivered"` // those of Replayed that were delivered
	DeadAgain int64 `json:"deadAgain"` // those of Replayed that died again
	// those of Replayed that ended in another way, or were removed
	Otherwise  int64     `json:"otherwise"`
	Waiting    int64     `json:"waiting"` // those of Replayed that are not final yet
	StartedAt  time.Time `json:"startedAt"`
	UpdatedAt  time.Time `json:"updatedAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// why the job was stopped; "" = not stopped
	StopReason string `json:"stopReason,omitempty"`
}

// IsRunning reports whether the bulk replay is still running.
func (j Job) IsRunning() bool { return j.State == JobRunning }

// CountFinal returns the number of matched messages for which the job has nothing left to do.
func (j Job) CountFinal() int64 {
	return j.Delivered + j.DeadAgain + j.Otherwise + j.Refused + j.Skipped
}

// JobFilter selects the dead messages that match every set field.
type JobFilter struct {
	Key      string `json:"key,omitempty"`
	Lane     *int   `json:"lane,omitempty"`
	Contract string `json:"contract,omitempty"`
	// fingerprint of the failure, see weir.Fingerprint
	Fingerprint string    `json:"fingerprint,omitempty"`
	From        time.Time `json:"from,omitzero"` // died at this time or later
	To          time.Time `json:"to,omitzero"`   // died before this time
}

// JobPlan is the preview of a bulk replay. If Complete is false, Count, Keys and Refused can be too
// low.
type JobPlan struct {
	Count int64 `json:"count"` // number of messages that match
	// all dead messages were read, and all that match were checked
	Complete         bool    `json:"complete"`
	EstimatedSeconds float64 `json:"estimatedSeconds"` // estimated duration of the bulk replay
	// number of different keys of the messages that match
	Keys int64 `json:"keys"`
	// those of Count whose replay would be refused; see Job.Refused
	Refused int64 `json:"refused"`
	// MissingContract is the number of those of Count whose contract the settings lack. After a
	// replay they wait.
	MissingContract int64 `json:"missingContract,omitempty"`
}
