package recur

import (
	"testing"
	"time"
)

// A process has appended an occurrence, and another process has written the schedule meanwhile.
func TestSchedule_Reconcile(t *testing.T) {
	t.Parallel()
	due := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	before := State{NextAt: due}
	filed := Filed{DueAt: due, Run: 7}
	for name, c := range map[string]struct {
		state     State
		isChanged bool
	}{
		"Next":        {State{NextAt: due}, false},
		"Counted":     {State{NextAt: due.Add(time.Minute), Last: filed}, false},
		"Missed":      {State{NextAt: due.Add(time.Minute), Missed: 1}, true},
		"Skipped":     {State{NextAt: due.Add(time.Minute), Skipped: 1, SkippedAt: due}, true},
		"Paused":      {State{}, true},
		"PausedLater": {State{Last: Filed{DueAt: due.Add(time.Minute)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Schedule{State: c.state}
			got := s.reconcile(filed, before)
			if got != c.isChanged || got != (s.State.Filed == 1) {
				t.Errorf("got %t and %+v, want %t", got, s.State, c.isChanged)
			}
			if s.State.Missed != 0 || s.State.Skipped != 0 {
				t.Errorf("got missed %d and skipped %d, want 0", s.State.Missed, s.State.Skipped)
			}
		})
	}
}
