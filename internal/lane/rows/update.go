package rows

import (
	"context"
	"errors"
	"time"

	"weir/internal/clock"
	"weir/internal/storage"
)

// ErrUndone means that the context of an Update ended before the change was known to be made.
var ErrUndone = errors.New("the change is not known to be made")

// undone is the error of an Update that ended with ErrUndone. It has the text of the last attempt's error.
type undone struct{ cause error }

func (u undone) Error() string   { return u.cause.Error() }
func (u undone) Unwrap() []error { return []error{u.cause, ErrUndone} }

// Update makes a conditional change. attempt reads the rows, writes them under their ETags, and reports whether
// the change is finished: done, or refused for good. Otherwise Update pauses as long as pause returns for the error,
// and repeats attempt until ctx ends. attempt must recognize a change that an earlier attempt has made,
// because an answer can be lost.
func Update(ctx context.Context, attempt func() (done bool, err error), pause func(error) time.Duration) error {
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

// IsUncertain reports whether the rows have to be read to find out if a transaction was done. It is true in two cases:
// storage has not answered definitely, or has refused the condition of operation 0. In the second case an earlier copy
// of the same transaction may have changed the row of that operation.
func IsUncertain(err error) bool {
	switch storage.KindOf(err) {
	case storage.Ambiguous, storage.Throttled, storage.Unavailable:
		return true
	case storage.Precondition:
		return storage.FailedAt(err) <= 0
	}
	return false
}
