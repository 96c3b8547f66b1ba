package wire

import (
	"time"

	"weir/internal/weir"
)

// FileProblems is the content of a problems file. It lies beside a refused file.
type FileProblems struct {
	Name      string         `json:"name"` // name of the file in the inbox
	RefusedAt time.Time      `json:"refusedAt"`
	Detail    string         `json:"detail"` // the sentence that the answer to a post would have
	Problems  []weir.Problem `json:"problems,omitempty"`
	Batch     string         `json:"batch,omitempty"` // id of the batch, if the file is one
	Parts     []PartProblem  `json:"parts,omitempty"` // the invalid parts of the batch
}
