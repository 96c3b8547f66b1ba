package drain

import (
	"testing"
	"time"
)

// A message that the CMS refuses alone makes pauses that grow, and then is dead. The CMS works. When the
// CMS goes away later, the lane tries again as soon as if nothing had happened before.
func TestOutlook_ATroubleEndsWithItsPauses(t *testing.T) {
	t.Parallel()
	o := newOutlook(Backoff{Min: time.Second, Max: time.Minute})
	now := time.Now()
	const cause = "away"
	for range 30 {
		now = now.Add(o.planPause(0, cause, now, time.Minute))
	}
	if grown := o.planPause(0, cause, now, time.Minute); grown < 5*time.Second {
		t.Errorf("after 30 pauses got one of %s, want it grown to 5s at least", grown)
	}

	first := o.planPause(0, cause, now.Add(2*time.Minute), time.Minute)
	if want := o.backoff.longestDelay(1); first != want {
		t.Errorf("got a first pause of %s in the next trouble, want %s", first, want)
	}
}
