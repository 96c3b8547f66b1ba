package clock_test

import (
	"context"
	"errors"
	"sync"
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

func TestWaitFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work, took time.Duration
		want       error
	}{
		"ToItsEnd": {time.Second, time.Second, nil},
		"CutOff":   {time.Hour, time.Minute, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var work sync.WaitGroup
				work.Go(func() { time.Sleep(c.work) })
				began := time.Now()
				if err := clock.WaitFor(ctx, &work); !errors.Is(err, c.want) {
					t.Errorf("got the error %v, want %v", err, c.want)
				}

				if took := time.Since(began); took != c.took {
					t.Errorf("got the end after %s, want it after %s", took, c.took)
				}

				work.Wait()
			})
		})
	}
}

func TestEarlierAndLater(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	last := first.Add(1)
	for _, pair := range [][2]time.Time{{first, last}, {last, first}} {
		if got := clock.Earlier(pair[0], pair[1]); !got.Equal(first) {
			t.Errorf("earlier of %v: got %v, want %v", pair, got, first)
		}

		if got := clock.Later(pair[0], pair[1]); !got.Equal(last) {
			t.Errorf("later of %v: got %v, want %v", pair, got, last)
		}
	}
}
