package clock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clock"
)

func TestWithTimeout_StandsStillWhileHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		outer, cancelOuter := clock.WithTimeout(t.Context(), 10*time.Second)
		defer cancelOuter()
		inner, cancel := clock.WithTimeout(outer, 4*time.Second)
		defer cancel()

		time.Sleep(3 * time.Second)
		resume := clock.HoldTimeouts(inner)
		other := clock.HoldTimeouts(inner) // two waits at the same time hold it once
		time.Sleep(time.Hour)
		resume()
		resume()
		time.Sleep(time.Hour)
		if inner.Err() != nil || outer.Err() != nil {
			t.Fatal("a timeout ended while it was held")
		}

		other()
		held := time.Since(began) - 3*time.Second
		<-inner.Done()
		if took := time.Since(began) - held; took != 4*time.Second ||
			!errors.Is(context.Cause(inner), context.DeadlineExceeded) {
			t.Errorf("the inner timeout ended after %s with %v, want 4s and %v", took,
				context.Cause(inner), context.DeadlineExceeded)
		}

		<-outer.Done()
		if took := time.Since(began) - held; took != 10*time.Second {
			t.Errorf("the outer timeout ended after %s, want 10s", took)
		}
	})
}

func TestWithTimeout_EndsWithItsParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancelParent := context.WithCancel(t.Context())
		ctx, cancel := clock.WithTimeout(parent, time.Second)
		defer cancel()
		resume := clock.HoldTimeouts(ctx)
		cancelParent()
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("cause %v, want %v", context.Cause(ctx), context.Canceled)
		}
		resume()

		ended, end := clock.WithTimeout(t.Context(), time.Second)
		resume = clock.HoldTimeouts(ended)
		end()
		resume() // no timer begins anew
		if err := ended.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}
