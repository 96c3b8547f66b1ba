package app

import (
	"testing"
	"time"
)

func TestFirstUpkeep(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	for period, want := range map[time.Duration]int{time.Minute: 4, 10 * time.Second: 4,
		2 * time.Hour: 2} {
		begun := 0
		for at := noon.Add(2 * time.Second); at.Before(noon.Add(4 * time.Hour)); at = at.Add(period) {
			if first := firstUpkeep(at, period); !first.After(at) {
				begun++
			} else if first.Sub(at) > time.Hour {
				t.Errorf("process of %s: got its first upkeep at %s, want it within 1h", at, first)
			}
		}

		if begun != want {
			t.Errorf("period %s: got %d processes with upkeep in 4 hours, want %d", period,
				begun, want)
		}
	}
}
