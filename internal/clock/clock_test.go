package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/clock"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit, d, took time.Duration
		want           bool
	}{
		"ToItsEnd":    {time.Hour, time.Minute, time.Minute, true},
		"CutOff":      {time.Second, time.Minute, time.Second, false},
		"AtOnce":      {time.Hour, -1, 0, true},
		"EndedBefore": {0, time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				began := time.Now()
				if got := clock.Sleep(ctx, c.d); got != c.want || time.Since(began) != c.took {
					t.Errorf("%v after %s, want %v and %v", got, time.Since(began), c.want, c.took)
				}
			})
		})
	}
}
