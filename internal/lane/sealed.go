package lane

import (
	"errors"
	"time"

	"weir/internal/weir"
)

// ErrClosed means that the lane's epoch is over, or about to end. No process is allowed to hold the
// lane.
var ErrClosed = errors.New("closed: the number of lanes is being changed")

// sealedRetry is the Retry-After of a call that is refused because the lane is sealed. A lane is
// sealed during a change of the number of lanes. Such a change takes seconds if the lanes become
// empty soon.
const sealedRetry = 10 * time.Second

// SealedError returns the error of a change that is refused during a change of the number of lanes.
func SealedError(op string) error {
	return &weir.Error{Kind: weir.Unavailable, Op: op,
		Message: "the number of lanes is being changed; try again", RetryAfter: sealedRetry}
}

// ClockSkew is the largest difference between the clocks of two processes for which Weir works
// correctly.
const ClockSkew = 2 * time.Second
