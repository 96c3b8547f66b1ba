package lane

import "weir/internal/weir"

// CheckPosition returns an error if a position was reached in another epoch than the one that is
// open. Each call that continues a list, a search or a bulk change checks its position with
// CheckPosition. A change of the number of lanes opens a new epoch and gives other positions to
// waiting and dead messages, so a call that continued at the position would miss messages and say
// that it is complete.
func (s *Store) CheckPosition(op string, epoch int) error {
	if epoch == s.Epoch {
		return nil
	}
	message := "the number of lanes has changed since the earlier answer: begin anew, without continue"
	return &weir.Error{Kind: weir.Malformed, Op: op, Message: message,
		Problems: []weir.Problem{{Path: "continue", Rule: "outdated", Message: message}}}
}
