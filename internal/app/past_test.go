package app

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/weir"
	"weir/internal/wire"
)

// The story of a message counts the attempts of its own lane, in its own wait.
func TestPastOf_Uncounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTestRunning(t)
		from := time.Now()

		for range 2 {
			r.instruments.recorder.Attempted(
				0,
				&weir.Message{},
				weir.Result{Outcome: weir.OutcomeUnavailable, Status: 503,
					StartedAt: time.Now()},
				weir.OutcomeUnavailable,
			)

			time.Sleep(2 * time.Minute)
		}

		to := time.Now()
		time.Sleep(5 * time.Minute)

		for _, c := range []struct {
			name     string
			lane     int
			from, to time.Time
			want     wire.Uncounted
		}{
			{"the whole wait", 0, from, to, wire.Uncounted{Attempts: 2, Status: 503}},
			{"a part of it", 0, from.Add(2 * time.Minute), to,
				wire.Uncounted{Attempts: 1, Status: 503}},
			{"another time", 0, to.Add(2 * time.Minute), to.Add(3 * time.Minute), wire.Uncounted{}},
			{"another lane", 1, from, to, wire.Uncounted{}},
			{"long ago", 0, from.Add(-25 * time.Hour), to, wire.Uncounted{}},
		} {
			got, err := pastOf{r.history}.Uncounted(t.Context(), c.lane, c.from, c.to)
			if err != nil || got != c.want {
				t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
			}
		}
	})
}
