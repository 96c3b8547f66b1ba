package wire

import (
	"time"

	"weir/internal/weir"
)

// FileProblems is the content of a problems file. It describes a rejected file, or the invalid
// parts of an accepted batch.
type FileProblems struct {
	Name      string         `json:"name"`      // name of the file in the inbox
	RefusedAt time.Time      `json:"refusedAt"` // for a batch, the time of the batch's last change
	Detail    string         `json:"detail"`    // the problems in one sentence
	Problems  []weir.Problem `json:"problems,omitempty"`
	// id of the batch that the file became; "" = none
	Batch string        `json:"batch,omitempty"`
	Parts []PartProblem `json:"parts,omitempty"` // the invalid parts of the batch
}
