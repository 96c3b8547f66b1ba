package recur_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"weir/internal/recur"
	"weir/internal/weir"
)

// wantRefusal checks that err is a Conflict whose text contains the parameter text, or that err is
// nil if text is empty.
func wantRefusal(t *testing.T, step string, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("%s: got %v, want no error", step, err)
	case text != "" && (weir.KindOf(err) != weir.Conflict || !strings.Contains(err.Error(), text)):
		t.Errorf("%s: got %v, want a Conflict that names %q", step, err, text)
	}
}

func TestRunner_Limits(t *testing.T) {
	paused := func(d *recur.Definition) { d.Paused = true }
	for name, c := range map[string]struct {
		limits recur.Limits
		// name; cron fields (a leading '-' means paused); text of the refusal, empty = accepted
		steps [][3]string
	}{
		"Number": {recur.Limits{Count: 2}, [][3]string{{"a", "@daily", ""}, {"b", "@daily", ""},
			{"c", "@daily", "schedules.max"}, {"b", "@hourly", ""}}},
		"Rate": {recur.Limits{Rate: 1}, [][3]string{{"a", "@every 2s", ""}, {"b", "@every 2s", ""},
			{"c", "@every 60s", "schedules.rate"}, {"c", "-@every 1s", ""},
			{"c", "@every 1s", "schedules.rate"},
			{"a", "@every 4s", ""}, {"c", "@every 4s", ""}}},
		"RateOfFields": {recur.Limits{Rate: 0.5},
			[][3]string{{"a", "* 30 9 * * *", "schedules.rate"},
				{"a", "0,1 30 9 * * *", "schedules.rate"}, {"a", "30 9 * * *", ""},
				{"b", "*/2 30 9 * * *", "schedules.rate"},
				{"b", "0,30 30 9 * * *", ""}}},
		"LoweredLimitAllowsLess": {recur.Limits{Count: 100, Rate: 0.01},
			[][3]string{{"old", "@every 2s", ""},
				{"old", "@every 1s", "schedules.rate"}, {"new", "@daily", "schedules.rate"}}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				if name == "LoweredLimitAllowsLess" {
					w.putSchedule(w.newRunner("before", 0), "old", newDefinition("@every 1s"))
				}

				r := w.newLimitedRunner("a", 0, c.limits)
				for _, step := range c.steps {
					d := newDefinition(strings.TrimPrefix(step[1], "-"))
					if strings.HasPrefix(step[1], "-") {
						paused(&d)
					}
					_, _, err := r.Put(t.Context(), step[0], d, recur.Condition{})
					wantRefusal(t, step[0]+" "+step[1], err, step[2])
				}
			})
		})
	}
}

func TestRunner_LimitHoldsForPutsAtTheSameMoment(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		r := w.newLimitedRunner("a", 0, recur.Limits{Count: 5})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, _, _ = r.Put(t.Context(), fmt.Sprint("s", i), newDefinition("@daily"),
					recur.Condition{})
			})
		}

		all.Wait()
		load, err := (&recur.Store{Table: w.memory.Table(), Now: w.newStore("").Now}).ReadLoad(
			t.Context())
		if err != nil || load.Count != 5 {
			t.Errorf("got %+v, %v, want 5 schedules", load, err)
		}
	})
}
