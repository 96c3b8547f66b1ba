package app

import (
	"weir/internal/history"
	"weir/internal/telemetry"
	"weir/internal/weir"
)

// submissions counts what arrives by one way in: the refused submissions in the metrics and the
// history, and the senders of posts in the history. The history shows the counts of all instances.
type submissions struct {
	*instruments
	way string // see history.Refusal
}

// Sent implements receive.Observer.
func (s submissions) Sent(sender string) { s.recorder.Sent(sender) }

// Refused counts a refused submission by its contract and the first rule that it breaks.
func (s submissions) Refused(err error) {
	s.metrics.Refused(s.way, err)
	s.recorder.Refused(history.Refusal{Way: s.way, Reason: telemetry.RefusalReason(err),
		Contract: weir.ContractOf(err), Rule: weir.FirstRule(err)})
}
