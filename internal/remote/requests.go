package remote

import (
	"encoding/json"
	"time"
)

// MessageList is a page of a search. It has the JSON of each message, which commands print unchanged with --json.
type MessageList struct {
	Messages []json.RawMessage `json:"messages"`
	Complete bool              `json:"complete"` // all rows were read
	Continue string            `json:"continue"` // parameter for the next page; "" = there is none
}

// ReplayFilter selects the dead messages that match every set field. The zero ReplayFilter selects all of them.
type ReplayFilter struct {
	Key         *string    `json:"key,omitempty"`
	Lane        *int       `json:"lane,omitempty"`
	Contract    string     `json:"contract,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"` // see weir.Fingerprint
	From        *time.Time `json:"from,omitempty"`        // died at this time or later
	To          *time.Time `json:"to,omitempty"`          // died before this time
}

// ReplayRequest asks for a bulk replay, or for its numbers.
type ReplayRequest struct {
	Filter          ReplayFilter `json:"filter"`
	DryRun          bool         `json:"dryRun,omitempty"`
	RatePerMinute   int          `json:"ratePerMinute,omitempty"`   // 0 = Weir's default
	StopAtErrorRate *float64     `json:"stopAtErrorRate,omitempty"` // 0 to 1; nil = Weir's default
	Force           bool         `json:"force,omitempty"`
	Reason          string       `json:"reason,omitempty"`
}

// WaitingFilter selects waiting messages. If All is set, it selects all of them. Otherwise it selects those that match
// every set field.
type WaitingFilter struct {
	All       bool       `json:"all,omitempty"`
	Key       *string    `json:"key,omitempty"`
	KeyPrefix string     `json:"keyPrefix,omitempty"`
	Contract  string     `json:"contract,omitempty"`
	Stage     string     `json:"stage,omitempty"` // scheduled, queued or retrying
	Lane      *int       `json:"lane,omitempty"`
	From      *time.Time `json:"from,omitempty"` // accepted at this time or later
	To        *time.Time `json:"to,omitempty"`   // accepted before this time; nil = the time of the request
}

// Cancellation asks Weir to cancel waiting messages.
type Cancellation struct {
	Filter   WaitingFilter `json:"filter"`
	DryRun   bool          `json:"dryRun,omitempty"` // Weir only counts the messages
	Reason   string        `json:"reason,omitempty"`
	Continue string        `json:"continue,omitempty"` // the field Continue of the last answer; "" = from the beginning
}

// DeadFilter selects dead messages to discard. If All is set, it selects all of them. Otherwise it selects those that
// match every set field.
type DeadFilter struct {
	All bool `json:"all,omitempty"`
	ReplayFilter
}

// DiscardRequest asks Weir to discard dead messages.
type DiscardRequest struct {
	Filter   DeadFilter `json:"filter"`
	DryRun   bool       `json:"dryRun,omitempty"` // Weir only counts the messages
	Reason   string     `json:"reason,omitempty"`
	Continue string     `json:"continue,omitempty"` // the field Continue of the last answer; "" = from the beginning
}

// Discarded has the numbers of messages of a DiscardRequest.
type Discarded struct {
	Selected int       `json:"selected"` // messages that the filter selects
	Asked    int       `json:"asked"`    // messages whose holders were asked to discard them
	TooLate  int       `json:"tooLate"`  // messages that were no longer dead, or that are to be replayed
	To       time.Time `json:"to"`       // the filter's To; if it was not set, the time of the first request
	Complete bool      `json:"complete"` // all dead messages were read
	Continue string    `json:"continue,omitempty"`
}

// Cancelled has the numbers of messages of a Cancellation.
type Cancelled struct {
	Selected  int       `json:"selected"`  // messages that the filter selects
	Cancelled int       `json:"cancelled"` // scheduled messages, which Weir cancelled at once
	Asked     int       `json:"asked"`     // messages whose holders were asked to cancel them
	TooLate   int       `json:"tooLate"`   // messages that were already final
	To        time.Time `json:"to"`        // the filter's To; if it was not set, the time of the first request
	Complete  bool      `json:"complete"`  // all waiting messages were read
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
	Until  string `json:"until,omitempty"` // a time in RFC 3339
	For    string `json:"for,omitempty"`   // a delay; see weir.ParseDelay
}
