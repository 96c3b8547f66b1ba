package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/retry"
)

var (
	errBusy  = errors.New("busy")
	errWrong = errors.New("wrong")
)

// calls has a function, recordCall, that fails with the errors in failures, one after the other,
// and then succeeds.
type calls struct {
	failures []error
	began    time.Time
	at       []time.Duration // times of the calls, counted from began
}

func (c *calls) recordCall() error {
	c.at = append(c.at, time.Since(c.began))
	if n := len(c.at); n <= len(c.failures) {
		return c.failures[n-1]
	}
	return nil
}

func repeatBusy(n int) []error { return slices.Repeat([]error{errBusy}, n) }

func isBusy(err error) bool { return errors.Is(err, errBusy) }

func TestPolicy_Do(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		policy   retry.Policy
		failures []error
		want     error
		at       []time.Duration
	}{
		"AtOnce": {retry.Policy{First: s}, nil, nil, []time.Duration{0}},
		"Doubling": {retry.Policy{First: s, Max: 5 * s}, repeatBusy(5), nil,
			[]time.Duration{0, s, 3 * s, 7 * s, 12 * s, 17 * s}},
		"Constant": {retry.Policy{First: s}, repeatBusy(3), nil,
			[]time.Duration{0, s, 2 * s, 3 * s}},
		"NoPause": {retry.Policy{}, repeatBusy(3), nil, []time.Duration{0, 0, 0, 0}},
		"Tries": {retry.Policy{First: s, Tries: 3}, repeatBusy(9), errBusy,
			[]time.Duration{0, s, 2 * s}},
		"Permanent": {retry.Policy{First: s, IsTransient: isBusy},
			[]error{errBusy, errWrong, errBusy}, errWrong, []time.Duration{0, s}},
		"Asked": {retry.Policy{First: s,
			BeforePause: func(_ error, pause time.Duration) (time.Duration, bool) {
				return pause + 9*s, true
			}}, repeatBusy(2), nil, []time.Duration{0, 10 * s, 20 * s}},
		"GivenUp": {retry.Policy{First: s,
			BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
				return pause, !errors.Is(err, errWrong)
			}}, []error{errBusy, errWrong, errBusy}, errWrong, []time.Duration{0, s}},
		// A Policy has no limit of time.
		"Long": {retry.Policy{First: time.Hour}, repeatBusy(2), nil,
			[]time.Duration{0, time.Hour, 2 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &calls{failures: c.failures, began: time.Now()}
				if err := c.policy.Do(t.Context(), f.recordCall); err !=
					c.want { //nolint:errorlint // not wrapped
					t.Errorf("got the error %v, want %v itself", err, c.want)
				}

				if !slices.Equal(f.at, c.at) {
					t.Errorf("called at %v, want %v", f.at, c.at)
				}
			})
		})
	}
}

// With a Spread of 0.5, each pause is between half of First and First.
func TestPolicy_Spread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &calls{failures: repeatBusy(400), began: time.Now()}
		if err := (retry.Policy{First: time.Minute, Spread: 0.5}).Do(t.Context(), f.recordCall); err != nil {
			t.Fatalf("got the error %v, want none", err)
		}

		shortest, longest := time.Hour, time.Duration(0)
		for i := 1; i < len(f.at); i++ {
			pause := f.at[i] - f.at[i-1]
			shortest, longest = min(shortest, pause), max(longest, pause)
		}

		if shortest < 30*time.Second || shortest > 35*time.Second || longest > time.Minute+1 ||
			longest < 55*time.Second {
			t.Errorf("got pauses from %s to %s, want them spread between 30s and 1m",
				shortest, longest)
		}
	})
}

// If the context ends, the error has the text of the last failure, but does not wrap that failure.
func TestPolicy_ContextEnds(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		endsAfter time.Duration
		at        []time.Duration
	}{
		"InAPause":           {90 * time.Minute, []time.Duration{0, time.Hour}},
		"BeforeTheFirstCall": {-1, []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), c.endsAfter, lost)
				defer cancel()
				f := &calls{failures: repeatBusy(9), began: time.Now()}
				err := retry.Policy{First: time.Hour}.Do(ctx, f.recordCall)
				if !errors.Is(err, lost) || errors.Is(err, errBusy) ||
					err.Error() != "lost; the last try: busy" {
					t.Errorf("got the error %v, want the cause, and the failure as text", err)
				}

				if !slices.Equal(f.at, c.at) {
					t.Errorf("called at %v, want %v", f.at, c.at)
				}
			})
		})
	}
}
