package diagnosis

import (
	"strings"
	"testing"

	"weir/internal/recur"
	"weir/internal/settings"
)

func TestDiagnose_ComparesSchedulesWithTheirLimits(t *testing.T) {
	t.Parallel()
	limits := settings.Default().Schedules.Limits()
	if want := (recur.Limits{Count: 500, Rate: 10}); limits != want {
		t.Fatalf("got %+v, want %+v", limits, want)
	}

	for name, c := range map[string]struct {
		load    recur.Load
		isAbove bool
	}{
		"Below":     {recur.Load{Count: 12, Rate: 0.25}, false},
		"Full":      {recur.Load{Count: 500, Rate: 10}, false},
		"TooMany":   {recur.Load{Count: 501, Rate: 1}, true},
		"TooOften":  {recur.Load{Count: 11, Rate: 10.5}, true},
		"NoneThere": {recur.Load{}, false},
	} {
		f := compareSchedules(c.load, limits)
		if (len(f.Warnings) == 1) != c.isAbove || f.Wrong != nil ||
			!strings.Contains(f.Detail, "of at most 500") {
			t.Errorf("%s: got %+v, want no problem, and a warning: %v", name, f, c.isAbove)
		}
	}
}
