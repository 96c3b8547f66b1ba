package lane

import (
	"errors"
	"time"

	"weir/internal/weir"
)

// ErrClosed means that the lane's epoch is over, or about to end: no process may hold the lane.
var ErrClosed = errors.New("closed: the number of lanes is being changed")

// sealedRetry is the Retry-After of a call that is refused because the lane is sealed. A change of the number of lanes
// takes seconds if the lanes become empty soon.
const sealedRetry = 10 * time.Second

// SealedError returns the error of a change that is refused because the lane is sealed.
func SealedError(op string) error {
	return &weir.Error{Kind: weir.Unavailable, Op: op, Message: "the number of lanes is being changed; try again",
		RetryAfter: sealedRetry}
}

// ClockSkew is how far the clocks of two processes may differ.
const ClockSkew = 2 * time.Second
