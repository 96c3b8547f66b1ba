package httpio_test

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// Two turns run at a time, and together they have no more memory than there is. A request that gets
// no turn is refused after five seconds.
func TestTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size   int64 // memory of each turn
		atOnce int
	}{"Small": {1, 2}, "Half": {50, 2}, "TooLargeForTwo": {51, 1}, "LargerThanAll": {1000, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				turns := httpio.NewTurns(100)
				var running []func()
				for range c.atOnce {
					done, err := turns.Take(t.Context(), c.size)
					if err != nil {
						t.Fatal(err)
					}
					running = append(running, done)
				}

				began := time.Now()
				none, err := turns.Take(t.Context(), c.size)
				if took := time.Since(began); weir.KindOf(err) != weir.Unavailable ||
					took != 5*time.Second {
					t.Errorf("turn %d: got %v after %s, want Unavailable after 5s",
						c.atOnce+1, err, took)
				}

				none()
				running[0]()

				if done, err := turns.Take(t.Context(), c.size); err != nil {
					t.Errorf("after the end of a turn: got %v, want no error", err)
				} else {
					done()
				}
			})
		})
	}
}
