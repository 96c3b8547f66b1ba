package wire

import (
	"time"

	"weir/internal/weir"
)

// BatchState is the state of a batch.
type BatchState string

// The states of a batch. The last three are final.
const (
	BatchChecking BatchState = "checking" // its parts are checked; none is filed yet
	BatchFiling   BatchState = "filing"   // its valid parts are filed, in order
	BatchFiled    BatchState = "filed"    // all valid parts are messages
	BatchRejected BatchState = "rejected" // no part was filed; Reason has the cause
	// BatchCancelled is the state of a batch that was cancelled before all its parts were messages.
	BatchCancelled BatchState = "cancelled"
)

// BatchMode decides about a batch with invalid parts.
type BatchMode string

// The modes of a batch.
const (
	BatchAll   BatchMode = "all"   // no part is filed if one is invalid
	BatchValid BatchMode = "valid" // the valid parts are filed
)

// BatchFormat is the form in which a batch was posted.
type BatchFormat string

// The formats of a batch.
const (
	BatchXML       BatchFormat = "xml"
	BatchZip       BatchFormat = "zip"
	BatchMultipart BatchFormat = "multipart"
)

// Batch is a document, or several, of which each part becomes a message. The batch's row in storage has the same
// form, without Problems and Stages.
type Batch struct {
	ID         string      `json:"id"`
	State      BatchState  `json:"state"`
	Mode       BatchMode   `json:"mode"`
	Format     BatchFormat `json:"format"`
	Upstream   string      `json:"upstream,omitempty"` // name of the upstream that sent it
	Split      []string    `json:"split,omitempty"`    // paths of the parts; none = each file is a part
	Bytes      int64       `json:"bytes"`
	Parts      int         `json:"parts"`   // found up to now; all as soon as they are checked
	Invalid    int         `json:"invalid"` // parts that break a rule
	Filed      int         `json:"filed"`   // parts that are messages
	AcceptedAt time.Time   `json:"acceptedAt"`
	UpdatedAt  time.Time   `json:"updatedAt"`
	FinishedAt time.Time   `json:"finishedAt,omitzero"`
	// CancelAskedAt is when an operator cancelled it. The parts filed by then stay messages.
	CancelAskedAt time.Time `json:"cancelAskedAt,omitzero"`
	Reason        string    `json:"reason,omitempty"` // why it was rejected
	Duplicate     bool      `json:"duplicate,omitempty"`

	Problems []PartProblem `json:"problems,omitempty"` // of the first invalid parts
	// Stages counts the filed parts by stage; "removed" has those whose message retention has removed.
	Stages map[weir.Stage]int `json:"stages,omitempty"`
}

// IsFinal reports whether the batch no longer changes, except for the stages of its messages.
func (b *Batch) IsFinal() bool {
	return b.State == BatchFiled || b.State == BatchRejected || b.State == BatchCancelled
}

// PartProblem is the reason for which a part is invalid.
type PartProblem struct {
	Part     int            `json:"part"`           // its place in the batch, from 1
	File     string         `json:"file,omitempty"` // of a zip or of multipart
	Line     int            `json:"line,omitempty"` // of the part's start tag in its document
	Message  string         `json:"message"`
	Problems []weir.Problem `json:"problems,omitempty"` // lines count from the beginning of the document
}
