package wire

import "time"

// LaneList is the state of all lanes, their sums, and the calendar.
type LaneList struct {
	Lanes    []Lane   `json:"lanes"`
	Totals   Counts   `json:"totals"`
	Calendar Calendar `json:"calendar"`
}

// Counts has the numbers of a lane's messages by state. Accepted is the sum of the other fields.
type Counts struct {
	Accepted   int64 `json:"accepted"`
	Delivered  int64 `json:"delivered"`
	Dead       int64 `json:"dead"`
	Cancelled  int64 `json:"cancelled"`
	Superseded int64 `json:"superseded"`
	Discarded  int64 `json:"discarded"`
	Moved      int64 `json:"moved,omitempty"` // messages that moved to the lanes of another epoch
	Waiting    int64 `json:"waiting"`
}

// IsBalanced reports whether Accepted is the sum of the other fields.
func (c Counts) IsBalanced() bool {
	return c.Accepted == c.Delivered+c.Dead+c.Cancelled+c.Superseded+c.Discarded+c.Moved+c.Waiting
}

// Lane is the state of a lane.
type Lane struct {
	Number int `json:"lane"`
	Counts
	Scheduled     int64     `json:"scheduled"`
	Queued        int64     `json:"queued"`
	Retrying      int64     `json:"retrying"`
	Exact         bool      `json:"exact"` // each waiting message was read for the counts by stage
	OldestAt      time.Time `json:"oldestWaitingAt,omitzero"`
	OldestSeconds *float64  `json:"oldestWaitingSeconds,omitempty"`
	Rate1         *float64  `json:"ratePerMinute1,omitempty"`  // messages finished in the minute before RatesUntil
	Rate15        *float64  `json:"ratePerMinute15,omitempty"` // per minute, in the 15 minutes before RatesUntil
	RatesUntil    time.Time `json:"ratesUntil,omitzero"`       // end of the last minute that all instances recorded
	EmptyIn       *float64  `json:"emptyInSeconds,omitempty"`
	Held          bool      `json:"held"` // a holder has the lane, or has died with it
	Holder        string    `json:"holder,omitempty"`
	Fence         int64     `json:"fence"`
	FoundDown     bool      `json:"foundDown,omitempty"` // the last attempt found the CMS unavailable
	PausedBy      string    `json:"pausedBy,omitempty"`  // operator, calendar, cms
	PausedUntil   time.Time `json:"pausedUntil,omitzero"`
	PauseReason   string    `json:"pauseReason,omitempty"`
	Pauses        []Pause   `json:"pauses"`
	NextDueAt     time.Time `json:"nextDueAt,omitzero"`
	LastError     string    `json:"lastError,omitempty"`
	LastErrorAt   time.Time `json:"lastErrorAt,omitzero"`
}
