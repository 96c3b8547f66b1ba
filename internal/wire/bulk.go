package wire

import "time"

// WaitingFilter selects all waiting messages if All is true, and otherwise those that match every
// set field.
type WaitingFilter struct {
	All       bool       `json:"all,omitempty"`
	Key       *string    `json:"key,omitempty"`
	KeyPrefix *string    `json:"keyPrefix,omitempty"`
	Contract  *string    `json:"contract,omitempty"`
	Stage     *string    `json:"stage,omitempty"` // scheduled, queued or retrying
	Lane      *int       `json:"lane,omitempty"`
	From      *time.Time `json:"from,omitempty"` // accepted at this time or later
	// accepted before this time; nil = the time of the request
	To *time.Time `json:"to,omitempty"`
}

// DeadFilter selects the dead messages that match every set field. The zero DeadFilter selects all
// of them.
type DeadFilter struct {
	Key         *string    `json:"key,omitempty"`
	Lane        *int       `json:"lane,omitempty"`
	Contract    *string    `json:"contract,omitempty"`
	Fingerprint *string    `json:"fingerprint,omitempty"` // see weir.Fingerprint
	From        *time.Time `json:"from,omitempty"`        // died at this time or later
	To          *time.Time `json:"to,omitempty"`          // died before this time
}

// DiscardFilter is a DeadFilter for a change that cannot be undone: to select all dead messages,
// All must be true.
type DiscardFilter struct {
	All bool `json:"all,omitempty"`
	DeadFilter
}

// BulkRequest asks Weir to change all messages that a filter selects.
type BulkRequest[F WaitingFilter | DiscardFilter] struct {
	Filter F      `json:"filter"`
	DryRun bool   `json:"dryRun,omitempty"` // Weir only counts the messages
	Reason string `json:"reason,omitempty"`
	// the field Continue of the last answer; "" = from the beginning
	Continue string `json:"continue,omitempty"`
}

// BulkAnswer is the answer to a BulkRequest.
type BulkAnswer struct {
	Selected int64 `json:"selected"` // messages that the filter selects
	// messages cancelled at once; nil in answers to a discard
	Cancelled *int64 `json:"cancelled,omitempty"`
	Asked     int64  `json:"asked"` // messages whose change was requested
	// messages that another change has reached first
	TooLate int64 `json:"tooLate"`
	// the filter's To; without it, the time of the first request
	To       time.Time `json:"to"`
	Complete bool      `json:"complete"` // all messages were read
	Continue string    `json:"continue,omitempty"`
}

// Add adds the numbers of the next answer, and takes its other fields.
func (a *BulkAnswer) Add(next BulkAnswer) {
	a.Selected += next.Selected
	a.Asked += next.Asked
	a.TooLate += next.TooLate
	if next.Cancelled != nil {
		sum := *next.Cancelled
		if a.Cancelled != nil {
			sum += *a.Cancelled
		}
		a.Cancelled = &sum
	}

	a.To, a.Complete, a.Continue = next.To, next.Complete, next.Continue
}

// ReplayRequest asks for a bulk replay. If DryRun is true, it only asks for the expected effect.
type ReplayRequest struct {
	Filter          *DeadFilter `json:"filter"` // must be present
	DryRun          bool        `json:"dryRun,omitempty"`
	RatePerMinute   *int        `json:"ratePerMinute,omitempty"`   // nil = Weir's default
	StopAtErrorRate *float64    `json:"stopAtErrorRate,omitempty"` // 0 to 1; nil = Weir's default
	Force           bool        `json:"force,omitempty"`
	Reason          string      `json:"reason,omitempty"`
}
