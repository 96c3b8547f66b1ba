package wire

import "time"

// LaneList has the state of all lanes, their totals, and the calendar.
type LaneList struct {
	Lanes    []Lane   `json:"lanes"`
	Totals   Counts   `json:"totals"`
	Calendar Calendar `json:"calendar"`
}

// Counts has the numbers of messages of a lane, or of all lanes, by state. Each message counts in
// Accepted and in one other field.
type Counts struct {
	Accepted   int64 `json:"accepted"`
	Delivered  int64 `json:"delivered"`
	Dead       int64 `json:"dead"`
	Cancelled  int64 `json:"cancelled"`
	Superseded int64 `json:"superseded"`
	Discarded  int64 `json:"discarded"`
	Moved      int64 `json:"moved,omitempty"` // messages that moved to the lanes of another epoch
	Waiting    int64 `json:"waiting"`         // messages that are scheduled, queued or retrying
}

// IsBalanced reports whether Accepted is the sum of the other fields.
func (c Counts) IsBalanced() bool {
	return c.Accepted == c.Delivered+c.Dead+c.Cancelled+c.Superseded+c.Discarded+c.Moved+c.Waiting
}

// Lane is the state of a lane.
type Lane struct {
	Number int `json:"lane"`
	Counts
	Scheduled int64 `json:"scheduled"`
	Queued    int64 `json:"queued"`
	Retrying  int64 `json:"retrying"`
	// false = Scheduled and Retrying can be too low, and Queued too high
	Exact bool `json:"exact"`
	// OldestAt is the time from which the oldest waiting message could be sent; zero = no message
	// could be sent yet. OldestSeconds is the number of seconds from OldestAt until now.
	OldestAt      time.Time `json:"oldestWaitingAt,omitzero"`
	OldestSeconds *float64  `json:"oldestWaitingSeconds,omitempty"`
	// Rate1 and Rate15 are numbers of messages that became final, per minute; nil = not known.
	// Rate1 covers the minute before RatesUntil, and Rate15 the 15 minutes before RatesUntil.
	// RatesUntil is the end of the last minute that all instances have recorded.
	Rate1      *float64  `json:"ratePerMinute1,omitempty"`
	Rate15     *float64  `json:"ratePerMinute15,omitempty"`
	RatesUntil time.Time `json:"ratesUntil,omitzero"`
	// expected time to send Queued and Retrying; nil = unknown
	EmptyIn *float64 `json:"emptyInSeconds,omitempty"`
	// a process holds the lane, or died as its holder
	Held   bool   `json:"held"`
	Holder string `json:"holder,omitempty"`
	Fence  int64  `json:"fence"`
	// FoundDown is set when the lane pauses because the CMS is unavailable. The next verdict of the
	// CMS on a message of the lane clears FoundDown, and so does an operator who resumes the lane.
	FoundDown bool `json:"foundDown,omitempty"`
	// "operator", "calendar" or "cms"; "" = the lane is not paused
	PausedBy    string    `json:"pausedBy,omitempty"`
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	PauseReason string    `json:"pauseReason,omitempty"`
	Pauses      []Pause   `json:"pauses"` // operators' pauses of the lane and of its keys
	// MissingContracts has the contracts that the settings lack, and for which messages of the lane
	// wait.
	MissingContracts []MissingContract `json:"missingContracts,omitempty"`
	// Brakes has the rejections for which messages of the lane wait.
	Brakes    []Brake   `json:"brakes,omitempty"`
	NextDueAt time.Time `json:"nextDueAt,omitzero"`
	// error of the last attempt that did not deliver
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
	// LastDeliveredAt is the time of the last delivery. If it is later than LastErrorAt, the error
	// is over.
	LastDeliveredAt time.Time `json:"lastDeliveredAt,omitzero"`
	// message whose attempt is under way for 5 s or more
	AttemptingID    string    `json:"attemptingId,omitempty"`
	AttemptingSince time.Time `json:"attemptingSince,omitzero"`
	// RefusedKeys is the number of keys, at least, whose messages the CMS refuses, while no other
	// message shows whether it refuses all. RefusedKey is one of them; "" = not known.
	// HasFewRefused is set if they are so few that the CMS probably takes all others.
	RefusedKeys   int64  `json:"refusedKeys,omitempty"`
	RefusedKey    string `json:"refusedKey,omitempty"`
	HasFewRefused bool   `json:"hasFewRefused,omitempty"`
}

// MissingContract is a contract that the settings lack, and for which messages of a lane wait.
type MissingContract struct {
	Contract string    `json:"contract"`
	Since    time.Time `json:"since"` // time at which a process first missed the contract
	// number of messages that wait, with those behind them in the lines of their keys
	Messages int64 `json:"messages"`
	Keys     int64 `json:"keys"` // number of ordering keys of these messages
}

// Brake is a rejection that has made messages of several keys dead, with no delivery of their
// contract between. Further messages with this rejection wait.
type Brake struct {
	Contract    string    `json:"contract"`
	Fingerprint string    `json:"fingerprint"`
	CMSStatus   int       `json:"cmsStatus,omitempty"` // 0 = the request could not be built
	Reason      string    `json:"reason"`              // normalised, as in the lists of errors
	Since       time.Time `json:"since"`
	// Messages is the number of messages that wait, with those behind them in the lines of their
	// keys.
	Messages int64 `json:"messages"`
	Keys     int64 `json:"keys"` // number of ordering keys of these messages
}

// IsErrorOver reports whether a message was delivered after the attempt of LastError.
func (l Lane) IsErrorOver() bool { return l.LastDeliveredAt.After(l.LastErrorAt) }
