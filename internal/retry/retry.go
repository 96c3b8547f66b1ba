// Package retry repeats calls that fail temporarily. It uses the library
// github.com/cenkalti/backoff, whose pauses are timers of package time. So the pauses take no real
// time in a bubble of testing/synctest.
//
// Two kinds of repeats do not use this package:
//   - the attempts to deliver a message: package drain stores the pauses between the attempts
//   - conditional changes of rows: each try must read the rows again, see rows.Update
package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
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
	// internal/simulation runs, because the library's random numbers do not come from the
	// simulation's seed.
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

// newPauses returns the library's pauses for a Policy. The library makes a pause randomly shorter
// or longer, but Policy.Spread must only make it shorter. So newPauses reduces the lengths first.
func newPauses(p Policy) *backoff.ExponentialBackOff {
	middle := 1 - p.Spread/2
	scale := func(d time.Duration) time.Duration { return time.Duration(float64(d) * middle) }
	return &backoff.ExponentialBackOff{InitialInterval: scale(p.First),
		MaxInterval: scale(max(p.First, p.Max)),
		Multiplier:  2, RandomizationFactor: p.Spread / 2 / middle}
}

// failure wraps an error of f, so that Do can distinguish that error from the end of the context.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }

// schedule implements backoff.BackOff for one call of Do.
type schedule struct {
	policy Policy
	pauses *backoff.ExponentialBackOff
	last   failure // error of the last call of f
}

func (s *schedule) Reset() { s.pauses.Reset() }

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
