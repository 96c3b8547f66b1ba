package remote

import (
	"encoding/json"
	"time"
)

// MessageList is a page of a search. It has the JSON of each message, which commands print unchanged.
type MessageList struct {
	Messages []json.RawMessage `json:"messages"`
	Complete bool              `json:"complete"`
	Continue string            `json:"continue"`
}

// ReplayFilter selects dead messages. The zero ReplayFilter selects all of them.
type ReplayFilter struct {
	Key         *string    `json:"key,omitempty"`
	Lane        *int       `json:"lane,omitempty"`
	Contract    string     `json:"contract,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	From        *time.Time `json:"from,omitempty"`
	To          *time.Time `json:"to,omitempty"`
}

// ReplayRequest asks for a bulk replay.
type ReplayRequest struct {
	Filter          ReplayFilter `json:"filter"`
	DryRun          bool         `json:"dryRun,omitempty"`
	RatePerMinute   int          `json:"ratePerMinute,omitempty"`   // 0 = Weir's default
	StopAtErrorRate *float64     `json:"stopAtErrorRate,omitempty"` // nil = Weir's default
	Force           bool         `json:"force,omitempty"`
	Reason          string       `json:"reason,omitempty"`
}

// WaitingFilter selects waiting messages. It needs All or at least one condition.
type WaitingFilter struct {
	All       bool       `json:"all,omitempty"`
	Key       *string    `json:"key,omitempty"`
	KeyPrefix string     `json:"keyPrefix,omitempty"`
	Contract  string     `json:"contract,omitempty"`
	Stage     string     `json:"stage,omitempty"`
	Lane      *int       `json:"lane,omitempty"`
	From      *time.Time `json:"from,omitempty"`
	To        *time.Time `json:"to,omitempty"`
}

// Cancellation asks Weir to cancel waiting messages.
type Cancellation struct {
	Filter   WaitingFilter `json:"filter"`
	DryRun   bool          `json:"dryRun,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Continue string        `json:"continue,omitempty"`
}

// DeadFilter selects dead messages to discard. It needs All or at least one condition.
type DeadFilter struct {
	All bool `json:"all,omitempty"`
	ReplayFilter
}

// DiscardRequest asks Weir to discard dead messages.
type DiscardRequest struct {
	Filter   DeadFilter `json:"filter"`
	DryRun   bool       `json:"dryRun,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Continue string     `json:"continue,omitempty"`
}

// Discarded has the numbers of messages of a DiscardRequest.
type Discarded struct {
	Selected int       `json:"selected"`
	Asked    int       `json:"asked"` // messages whose holders were asked to discard them
	TooLate  int       `json:"tooLate"`
	To       time.Time `json:"to"`
	Complete bool      `json:"complete"`
	Continue string    `json:"continue,omitempty"`
}

// Cancelled has the numbers of messages of a Cancellation.
type Cancelled struct {
	Selected  int       `json:"selected"`
	Cancelled int       `json:"cancelled"` // scheduled messages, which Weir cancels at once
	Asked     int       `json:"asked"`     // messages whose holders were asked to cancel them
	TooLate   int       `json:"tooLate"`
	To        time.Time `json:"to"`
	Complete  bool      `json:"complete"`
	Continue  string    `json:"continue,omitempty"`
}

// Target is the target of a pause or a resume. Exactly one of its fields is set.
type Target struct {
	All  bool    `json:"all,omitempty"`
	Lane *int    `json:"lane,omitempty"`
	Key  *string `json:"key,omitempty"`
}

// PauseRequest asks for a pause. Without Until and For, the pause ends when an operator resumes the target.
type PauseRequest struct {
	Target
	Reason string `json:"reason"`
	Until  string `json:"until,omitempty"`
	For    string `json:"for,omitempty"`
}
