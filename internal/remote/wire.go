package remote

import (
	"encoding/json"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// Receipt is the answer to a message.
type Receipt struct {
	ID        string     `json:"id"`
	Stage     weir.Stage `json:"stage"`
	Key       string     `json:"key"`
	Duplicate bool       `json:"duplicate"`
}

// Message is the state of a message.
type Message = httpio.Message

// Attempt is an attempt to deliver a message.
type Attempt = httpio.Attempt

// MessageList is a page of a search. It also has the JSON of each message.
type MessageList struct {
	Messages []json.RawMessage `json:"messages"`
	Complete bool              `json:"complete"`
	Continue string            `json:"continue"`
}

// ErrorList has the causes of dead messages.
type ErrorList struct {
	Errors []struct {
		Fingerprint string    `json:"fingerprint"`
		Contract    string    `json:"contract"`
		CMSStatus   int       `json:"cmsStatus"`
		Message     string    `json:"message"`
		Count       int       `json:"count"`
		Keys        int       `json:"keys"`
		LastAt      time.Time `json:"lastAt"`
	} `json:"errors"`
	Complete bool `json:"complete"`
}

// Filter selects dead messages. The zero Filter selects all.
type Filter struct {
	Key         *string    `json:"key,omitempty"`
	Lane        *int       `json:"lane,omitempty"`
	Contract    string     `json:"contract,omitempty"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	From        *time.Time `json:"from,omitempty"`
	To          *time.Time `json:"to,omitempty"`
}

// Replay is a request for a bulk replay.
type Replay struct {
	Filter          Filter   `json:"filter"`
	DryRun          bool     `json:"dryRun,omitempty"`
	RatePerMinute   int      `json:"ratePerMinute,omitempty"`   // 0 = Weir's default
	StopAtErrorRate *float64 `json:"stopAtErrorRate,omitempty"` // nil = Weir's default
	Force           bool     `json:"force,omitempty"`
	Reason          string   `json:"reason,omitempty"`
}

// Plan has the counts of a planned bulk replay.
type Plan struct {
	Count            int     `json:"count"`
	Complete         bool    `json:"complete"`
	EstimatedSeconds float64 `json:"estimatedSeconds"`
	Keys             int     `json:"keys"`
	Refused          int     `json:"refused"`
}

// Job is a started bulk replay.
type Job struct {
	ID         string `json:"id"`
	State      string `json:"state"` // running, done, stopped, cancelled
	Matched    int    `json:"matched"`
	Replayed   int    `json:"replayed"`
	Refused    int    `json:"refused"`
	Delivered  int    `json:"delivered"`
	DeadAgain  int    `json:"deadAgain"`
	Otherwise  int    `json:"otherwise"` // ended
	Skipped    int    `json:"skipped"`
	Waiting    int    `json:"waiting"`
	StopReason string `json:"stopReason"`
}

// WaitingFilter selects messages that wait. It needs a condition, or All.
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

// Cancellation asks for messages to be cancelled.
type Cancellation struct {
	Filter   WaitingFilter `json:"filter"`
	DryRun   bool          `json:"dryRun,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Continue string        `json:"continue,omitempty"`
}

// Cancelled counts the messages of a cancellation.
type Cancelled struct {
	Selected  int       `json:"selected"`
	Cancelled int       `json:"cancelled"` // scheduled ones
	Asked     int       `json:"asked"`     // left to their lanes' holders
	TooLate   int       `json:"tooLate"`
	To        time.Time `json:"to"`
	Complete  bool      `json:"complete"`
	Continue  string    `json:"continue,omitempty"`
}

// Target is the target of a pause or its end: exactly one of the fields.
type Target struct {
	All  bool    `json:"all,omitempty"`
	Lane *int    `json:"lane,omitempty"`
	Key  *string `json:"key,omitempty"`
}

// Pause asks for a pause. Neither Until nor For means until it is resumed.
type Pause struct {
	Target
	Reason string `json:"reason"`
	Until  string `json:"until,omitempty"`
	For    string `json:"for,omitempty"`
}

// PauseList is a list of pauses.
type PauseList struct {
	Pauses []struct {
		Scope  string     `json:"scope"`
		Lane   int        `json:"lane"`
		Key    string     `json:"key"`
		Reason string     `json:"reason"`
		Since  time.Time  `json:"since"`
		Until  *time.Time `json:"until"`
	} `json:"pauses"`
	Calendar struct {
		Closed     bool       `json:"closed"`
		Reason     string     `json:"reason"`
		Until      *time.Time `json:"until"`
		NextChange *time.Time `json:"nextChange"`
	} `json:"calendar"`
}
