package rows

import (
	"context"
	"errors"
	"time"

	"weir/internal/clock"
	"weir/internal/storage"
)

// ErrUndone means that the context of an Update ended, and that the caller does not know whether
// the change was made.
var ErrUndone = errors.New("the change is not known to be made")

// undone wraps two errors: the error of the last attempt, and ErrUndone. The text is that of the
// last attempt's error.
type undone struct{ cause error }

func (u undone) Error() string   { return u.cause.Error() }
func (u undone) Unwrap() []error { return []error{u.cause, ErrUndone} }

// Update makes a conditional change. The function attempt reads the rows, and writes them on the
// condition that their ETags have not changed. The function returns done = true if the change was
// made, or was refused for good.
//
// If done is false, Update waits for the time that pause returns for the attempt's error, and then
// calls attempt again, until ctx ends. The answer to a write can be lost. So attempt must recognize
// a change that an earlier call has made.
func Update(ctx context.Context, attempt func() (done bool, err error),
	pause func(error) time.Duration) error {
	for {
		done, err := attempt()
		if done {
			return err
		}
		if ctx.Err() != nil {
			return undone{err}
		}

		if d := pause(err); d > 0 && !clock.Sleep(ctx, d) {
			return undone{err}
		}
	}
}

// ResendPause is the pause before rows are read again after an unanswered transaction.
const ResendPause = 100 * time.Millisecond

// IsUncertain reports whether the caller has to read the rows to learn if a transaction was done:
//
//   - Storage has not answered definitely.
//   - Storage has refused a condition, and names operation 0 or no operation. Perhaps an earlier
//     copy of the same transaction was done, and changed the row, so that the condition of the
//     later copy failed.
func IsUncertain(err error) bool {
	switch storage.KindOf(err) {
	case storage.Ambiguous, storage.Throttled, storage.Unavailable:
		return true
	case storage.Precondition:
		return storage.FailedAt(err) <= 0
	}
	return false
}
