package wire

import (
	"time"

	"weir/internal/weir"
)

// FileProblems is the content of a problems file, which lies beside a file that was refused.
type FileProblems struct {
	Name      string         `json:"name"` // of the file in the inbox
	RefusedAt time.Time      `json:"refusedAt"`
	Detail    string         `json:"detail"` // the sentence with which a post would be answered
	Problems  []weir.Problem `json:"problems,omitempty"`
	Batch     string         `json:"batch,omitempty"` // id of the batch, if the file is one
	Parts     []PartProblem  `json:"parts,omitempty"` // the invalid parts of the batch
}
