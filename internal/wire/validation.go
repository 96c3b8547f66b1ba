package wire

import (
	"time"

	"weir/internal/weir"
)

// Validation is the result of a check of a body against the contracts. The body is not stored.
type Validation struct {
	IsValid bool `json:"valid"`
	// empty = no contract was found for the root element
	Contract  string         `json:"contract,omitempty"`
	Key       string         `json:"key,omitempty"`
	Version   string         `json:"version,omitempty"`
	DeliverAt time.Time      `json:"deliverAt,omitzero"`
	Problems  []weir.Problem `json:"problems,omitempty"`
}

// NewValidation returns the JSON form of a check's result.
func NewValidation(m weir.Message, problems []weir.Problem) Validation {
	v := Validation{IsValid: len(problems) == 0, Contract: m.Contract, Key: m.Key,
		Version: m.Version, Problems: problems}
	if !m.DueAt.IsZero() {
		v.DeliverAt = m.DueAt.UTC()
	}
	return v
}
