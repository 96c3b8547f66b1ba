// Package retry repeats calls that fail temporarily. Its pauses are timers of package time, so they
// take no real time in a bubble of testing/synctest.
//
// Two kinds of repeats do not use this package:
//   - the attempts to deliver a message: package drain stores the pauses between the attempts
//   - conditional changes of rows: each try must read the rows again, see rows.Update
package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"weir/internal/clock"
)

// Policy bounds how often a failed call is repeated, and sets the pauses between. The zero value
// repeats a failed call at once, without limit. A Policy is safe for concurrent use if its
// functions are.
type Policy struct {
	// First is the first pause. Each further pause is twice as long as the previous pause, up to
	// Max. If Max is not greater than First, each pause is as long as First.
	First, Max time.Duration
	// Spread is the largest share, from 0 to 1, by which a pause is shortened at random. With 0.5,
	// a pause can lose up to half of its length. Spread must be 0 in packages that
	// internal/simulation runs, because the random numbers do not come from the simulation's
	// seed.
	Spread float64
	// Tries limits the number of calls, including the first; 0 = no limit.
	Tries uint
	// IsTransient reports whether a call that failed with this error can be repeated. If
	// IsTransient is nil, each failed call can be repeated.
	IsTransient func(error) bool
	// BeforePause gets the error of a failed call and the computed pause. It returns the pause to
	// use, and false if the call must not be repeated. If BeforePause is nil, the computed pause is
	// used.
	BeforePause func(err error, pause time.Duration) (time.Duration, bool)
}

// Do calls f until f succeeds, and then returns nil. Do calls f at least once. If the Policy allows
// no further call, Do returns f's last error.
//
// If ctx ends first, Do returns an error that wraps the cause of ctx and has f's last error only as
// text. If Do wrapped f's error, a caller could take the result for a transient error and try
// again.
func (p Policy) Do(ctx context.Context, f func() error) error {
	pause, longest := p.First, max(p.First, p.Max)
	for tries := uint(1); ; tries++ {
		err := f()
		if err == nil || tries == p.Tries || p.IsTransient != nil && !p.IsTransient(err) {
			return err
		}

		if ctx.Err() != nil {
			return newEndError(ctx, err)
		}

		wait, again := p.shorten(pause), true
		if p.BeforePause != nil {
			wait, again = p.BeforePause(err, wait)
		}

		if !again {
			return err
		}

		if !clock.Sleep(ctx, max(wait, 0)) {
			return newEndError(ctx, err)
		}

		pause = min(2*pause, longest)
	}
}

// shorten returns a pause without a random part of at most Spread.
func (p Policy) shorten(pause time.Duration) time.Duration {
	return pause - time.Duration(p.Spread*rand.Float64()*float64(pause))
}

// newEndError returns the error of a Do whose context has ended, after the failure "last".
func newEndError(ctx context.Context, last error) error {
	return fmt.Errorf("%w; the last try: %v", context.Cause(ctx), last)
}
