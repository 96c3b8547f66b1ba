package app

import (
	"testing"
	"time"

	"weir/functions/sweep"
)

func TestSkipBlobSweep(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	for period, want := range map[time.Duration]int{time.Minute: 4, 10 * time.Second: 4, 2 * time.Hour: 2} {
		searches := 0
		for at := noon.Add(2 * time.Second); at.Before(noon.Add(4 * time.Hour)); at = at.Add(period) {
			c := &sweep.Cleaner{}
			if skipBlobSweep(c, at, period); !c.ForgottenAt.After(at) {
				searches++
			} else if c.ForgottenAt.Sub(at) > time.Hour {
				t.Errorf("process of %s: got the next search at %s, want it within 1h", at, c.ForgottenAt)
			}
		}
		if searches != want {
			t.Errorf("period %s: got %d searches in 4 hours, want %d", period, searches, want)
		}
	}
}
