package wire

import (
	"time"

	"weir/internal/weir"
)

// BatchState is the state of a batch.
type BatchState string

// The states of a batch. The last three are final.
const (
	BatchChecking BatchState = "checking" // Weir checks the parts; no part is a message yet
	BatchFiling   BatchState = "filing"   // Weir appends the valid parts as messages, in order
	BatchFiled    BatchState = "filed"    // all valid parts are messages
	BatchRejected BatchState = "rejected" // no part became a message; Reason has the cause
	// BatchCancelled is the state of a batch that was cancelled before all its parts were messages.
	BatchCancelled BatchState = "cancelled"
)

// BatchMode determines which parts become messages if some parts are invalid.
type BatchMode string

// The modes of a batch.
const (
	BatchAll   BatchMode = "all"   // no part becomes a message if any part is invalid
	BatchValid BatchMode = "valid" // the valid parts become messages
)

// BatchFormat is the form in which a batch was posted.
type BatchFormat string

// The formats of a batch.
const (
	BatchXML       BatchFormat = "xml"
	BatchZip       BatchFormat = "zip"
	BatchMultipart BatchFormat = "multipart"
)

// Batch describes a batch: one or more documents whose valid parts become messages. The batch's row
// in storage has the same form, without Problems, Stages and Duplicate.
type Batch struct {
	ID       string      `json:"id"`
	State    BatchState  `json:"state"`
	Mode     BatchMode   `json:"mode"`
	Format   BatchFormat `json:"format"`
	Upstream string      `json:"upstream,omitempty"` // name of the upstream that sent the batch
	// paths to the parts; none = each file is a part
	Split      []string  `json:"split,omitempty"`
	Bytes      int64     `json:"bytes"`   // size of the posted body
	Parts      int       `json:"parts"`   // number of parts found so far
	Invalid    int       `json:"invalid"` // number of parts that break a rule
	Filed      int       `json:"filed"`   // number of parts that are messages
	AcceptedAt time.Time `json:"acceptedAt"`
	UpdatedAt  time.Time `json:"updatedAt"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// CancelAskedAt is the time of the request to cancel the batch; zero = no request. Parts that
	// are messages already stay messages.
	CancelAskedAt time.Time `json:"cancelAskedAt,omitzero"`
	// why the batch was rejected, or is incomplete
	Reason string `json:"reason,omitempty"`
	// an earlier post with this idempotency key made the batch
	Duplicate bool `json:"duplicate,omitempty"`

	Problems []PartProblem `json:"problems,omitempty"` // problems of the first invalid parts
	// Stages has the number of the batch's messages in each stage. The key "removed" has the number
	// of messages that retention has removed.
	Stages map[weir.Stage]int `json:"stages,omitempty"`
}

// IsFinal reports whether the batch no longer changes, except for the stages of its messages.
func (b *Batch) IsFinal() bool {
	return b.State == BatchFiled || b.State == BatchRejected || b.State == BatchCancelled
}

// PartProblem is the reason why a part is invalid.
type PartProblem struct {
	Part    int    `json:"part"`           // the part's place in the batch, from 1
	File    string `json:"file,omitempty"` // name of the file in a zip or multipart
	Line    int    `json:"line,omitempty"` // line of the part's start tag in its document
	Message string `json:"message"`
	// their line numbers count from the document's beginning
	Problems []weir.Problem `json:"problems,omitempty"`
}
