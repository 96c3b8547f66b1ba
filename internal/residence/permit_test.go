package residence_test

import (
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/residence"
)

func TestPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := residence.NewPermit(time.Now)
		check := func(after string, mayKeep, mayTake bool) {
			t.Helper()
			if got := p.MayKeepLanes(); got != mayKeep {
				t.Errorf("%s: MayKeepLanes: got %t, want %t", after, got, mayKeep)
			}

			if got := p.MayTakeLanes(); got != mayTake {
				t.Errorf("%s: MayTakeLanes: got %t, want %t", after, got, mayTake)
			}
		}

		check("at the start", false, true)
		p.Attend()
		check("Attend", true, true)
		p.Yield()
		p.StopTaking()
		check("Yield and StopTaking", false, false)
		p.MarkTriggered()
		check("MarkTriggered", false, true)
		p.StopTaking()
		time.Sleep(10*time.Minute - 1)
		check("almost ten minutes", false, false)
		time.Sleep(time.Nanosecond)
		check("ten minutes", false, true)
	})
}

// A process without a Functions host may always keep and take lanes.
func TestPermit_WithoutAHost(t *testing.T) {
	t.Parallel()
	var p *residence.Permit
	p.Attend()
	p.StopTaking()
	p.Yield()
	p.MarkTriggered()

	if p.IsHosted() || !p.MayKeepLanes() || !p.MayTakeLanes() {
		t.Errorf("got IsHosted %t, MayKeepLanes %t, MayTakeLanes %t; want false, true, true",
			p.IsHosted(), p.MayKeepLanes(), p.MayTakeLanes())
	}
}
