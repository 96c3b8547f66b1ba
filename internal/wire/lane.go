package wire

import "time"

// LaneList is the state of all lanes, their sums, and the calendar.
type LaneList struct {
	Lanes    []Lane   `json:"lanes"`
	Totals   Counts   `json:"totals"`
	Calendar Calendar `json:"calendar"`
}

// Counts has the numbers of messages of a lane, or of all lanes, by state. Each message in Accepted is also in one of
// the other fields.
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
	Exact     bool  `json:"exact"` // Scheduled, Queued and Retrying together count all waiting messages
	// OldestAt is the time since which the oldest waiting message may be sent; zero = none may be sent. OldestSeconds
	// is the number of seconds since OldestAt.
	OldestAt      time.Time `json:"oldestWaitingAt,omitzero"`
	OldestSeconds *float64  `json:"oldestWaitingSeconds,omitempty"`
	// Rate1 and Rate15 are rates: the number of messages that became final, per minute; nil = not known. Rate1 is the
	// rate of the minute before RatesUntil, and Rate15 of the 15 minutes before RatesUntil. RatesUntil is the end of
	// the last minute that all instances have recorded.
	Rate1       *float64  `json:"ratePerMinute1,omitempty"`
	Rate15      *float64  `json:"ratePerMinute15,omitempty"`
	RatesUntil  time.Time `json:"ratesUntil,omitzero"`
	EmptyIn     *float64  `json:"emptyInSeconds,omitempty"` // estimated time until the lane is empty; nil = not known
	Held        bool      `json:"held"`                     // a holder has the lane, or died while it had the lane
	Holder      string    `json:"holder,omitempty"`
	Fence       int64     `json:"fence"`
	FoundDown   bool      `json:"foundDown,omitempty"` // the CMS judged no message since the lane paused for the CMS
	PausedBy    string    `json:"pausedBy,omitempty"`  // "operator", "calendar" or "cms"; "" = the lane is not paused
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	PauseReason string    `json:"pauseReason,omitempty"`
	Pauses      []Pause   `json:"pauses"` // operators' pauses of the lane and of its keys
	NextDueAt   time.Time `json:"nextDueAt,omitzero"`
	LastError   string    `json:"lastError,omitempty"` // error of the last attempt that did not deliver
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}
