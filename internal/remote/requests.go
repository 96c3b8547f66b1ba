package remote

import (
	"encoding/json"
	"time"
)

// MessageList is a page of messages. The messages stay JSON, because commands print them unchanged with --json.
type MessageList struct {
	Messages []json.RawMessage `json:"messages"`
	Complete bool              `json:"complete"` // all rows were read
	Continue string            `json:"continue"` // parameter "continue" of the next page's request; "" = last page
}

// ReplayFilter selects the dead messages that match every set field. The zero ReplayFilter selects all dead messages.
type ReplayFilter struct {
	Key         *string    `json:"key,omitempty"`
	Lane        *int       `json:"lane,omitempty"`
	Contract    string     `json:"contract,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"` // see weir.Fingerprint
	From        *time.Time `json:"from,omitempty"`        // died at this time or later
	To          *time.Time `json:"to,omitempty"`          // died before this time
}

// ReplayRequest asks for a bulk replay. If DryRun is true, it only asks for the expected effect of the bulk replay.
type ReplayRequest struct {
	Filter          ReplayFilter `json:"filter"`
	DryRun          bool         `json:"dryRun,omitempty"`
	RatePerMinute   int          `json:"ratePerMinute,omitempty"`   // 0 = Weir's default
	StopAtErrorRate *float64     `json:"stopAtErrorRate,omitempty"` // 0 to 1; nil = Weir's default
	Force           bool         `json:"force,omitempty"`
	Reason          string       `json:"reason,omitempty"`
}

// WaitingFilter selects all waiting messages if All is true, and otherwise those that match every set field.
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

// DeadFilter selects all dead messages if All is true, and otherwise those that match every set field.
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

// Discarded is the answer to a DiscardRequest.
type Discarded struct {
	Selected int       `json:"selected"` // messages that the filter selects
	Asked    int       `json:"asked"`    // messages whose discard was requested
	TooLate  int       `json:"tooLate"`  // messages that are no longer dead, or whose replay was requested before
	To       time.Time `json:"to"`       // the filter's To; without it, the time of the first request
	Complete bool      `json:"complete"` // all dead messages were read
	Continue string    `json:"continue,omitempty"`
}

// Cancelled is the answer to a Cancellation.
type Cancelled struct {
	Selected  int       `json:"selected"`  // messages that the filter selects
	Cancelled int       `json:"cancelled"` // scheduled messages, which Weir cancelled at once
	Asked     int       `json:"asked"`     // messages whose cancellation was requested
	TooLate   int       `json:"tooLate"`   // messages that were already final
	To        time.Time `json:"to"`        // the filter's To; without it, the time of the first request
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
