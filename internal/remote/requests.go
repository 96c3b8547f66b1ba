package remote

import (
	"encoding/json"
)

// MessageList is a page of messages. The messages stay JSON, because commands print them unchanged
// with --json.
type MessageList struct {
	Messages []json.RawMessage `json:"messages"`
	Complete bool              `json:"complete"` // all rows were read
	// parameter "continue" of the next page's request; "" = last page
	Continue string `json:"continue"`
}

// Target is the target of a pause or a resume. Exactly one of its fields is set.
type Target struct {
	All  bool    `json:"all,omitempty"`
	Lane *int    `json:"lane,omitempty"`
	Key  *string `json:"key,omitempty"`
}

// PauseRequest asks for a pause. Without Until and For, the pause ends when an operator resumes the
// target.
type PauseRequest struct {
	Target
	Reason string `json:"reason"`
	Until  string `json:"until,omitempty"` // a time in RFC 3339
	For    string `json:"for,omitempty"`   // a delay; see weir.ParseDelay
}
