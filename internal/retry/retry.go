// Package retry repeats calls that fail for a while. The library github.com/cenkalti/backoff computes the pauses and
// waits for them with timers of package time, so that the pauses pass in virtual time in testing/synctest.
//
// Two kinds of repeats do not belong here. The pauses between a message's attempts are stored, and belong to package
// drain. A conditional change of rows must read the rows before each repeat, and uses rows.Update.
package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Policy has the pauses between the calls, and the failures after which there is no further call. The zero value
// repeats each failed call at once, without end. A Policy may be used by several goroutines.
type Policy struct {
	// First is the first pause. Each following one is twice as long, up to Max. If Max is at most First, each pause is
	// First.
	First, Max time.Duration
	// Spread is the share of each pause that is drawn at random, from 0 to 1: with 0.5 a pause has half its length at
	// least. It must be 0 in packages that the simulation runs, because the random numbers do not depend on the
	// simulation's seed.
	Spread float64
	// Tries limits the number of calls; 0 = no limit.
	Tries uint
	// IsTransient reports whether another call may succeed after an error; nil = each error is transient.
	IsTransient func(error) bool
	// BeforePause is called with the error and with the computed pause. It returns the pause to make, or false if there
	// is to be no further call. It may be nil.
	BeforePause func(err error, pause time.Duration) (time.Duration, bool)
}

// Do calls f until it succeeds, and returns nil. It returns f's error if there is to be no further call. If ctx ends
// first, it returns the cause of that end, and f's error only as text: otherwise a caller that sees a transient error
// would try again. Do calls f at least once.
func (p Policy) Do(ctx context.Context, f func() error) error {
	s := &schedule{policy: p, pauses: newPauses(p)}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		if s.last.err = f(); s.last.err == nil {
			return struct{}{}, nil
		}
		if p.IsTransient != nil && !p.IsTransient(s.last.err) {
			return struct{}{}, backoff.Permanent(&s.last)
		}
		return struct{}{}, &s.last
	}, backoff.WithBackOff(s), backoff.WithMaxTries(p.Tries), backoff.WithMaxElapsedTime(0))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, &s.last):
		return s.last.err
	}
	return fmt.Errorf("%w; the last try: %v", err, s.last.err)
}

// newPauses returns pauses between (1 - Spread) of their length and their whole length. The library's own spread is
// around the middle.
func newPauses(p Policy) *backoff.ExponentialBackOff {
	middle := 1 - p.Spread/2
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * middle) }
	return &backoff.ExponentialBackOff{InitialInterval: scale(p.First), MaxInterval: scale(max(p.First, p.Max)),
		Multiplier: 2, RandomizationFactor: p.Spread / 2 / middle}
}

// failure marks f's error, so that it can be distinguished from the end of the context.
type failure struct{ err error }

// Error implements error.
func (f *failure) Error() string { return f.err.Error() }

// schedule is the library's BackOff for the calls of one Do.
type schedule struct {
	policy Policy
	pauses *backoff.ExponentialBackOff
	last   failure // of the last call
}

// Reset implements backoff.BackOff.
func (s *schedule) Reset() { s.pauses.Reset() }

// NextBackOff implements backoff.BackOff.
func (s *schedule) NextBackOff() time.Duration {
	pause := s.pauses.NextBackOff()
	if s.policy.BeforePause == nil {
		return pause
	}
	pause, again := s.policy.BeforePause(s.last.err, pause)
	if !again {
		return backoff.Stop
	}
	return max(pause, 0)
}
