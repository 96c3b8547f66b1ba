package rows

import (
	"context"
	"errors"
	"time"

	"weir/internal/clock"
)

// ErrUndone is in the error of an Update whose context ended: the change may have been made, or not.
var ErrUndone = errors.New("the change is not known to be made")

// undone is the last error of a change whose context ended.
type undone struct{ cause error }

func (u undone) Error() string   { return u.cause.Error() }
func (u undone) Unwrap() []error { return []error{u.cause, ErrUndone} }

// Update makes a conditional change: attempt reads the rows, writes them under their ETags, and
// reports whether it is done, with success or with an error that a repetition cannot mend. If it is
// not, Update pauses as long as pause returns for the error, and repeats it until ctx ends. The
// attempt must therefore recognize a change that was made by an earlier attempt, whose answer was
// lost.
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
