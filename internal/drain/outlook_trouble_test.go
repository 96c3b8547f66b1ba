package drain

import (
	"testing"
	"time"
)

// A message that the CMS refuses alone makes pauses that grow, and then is dead. The CMS works.
// When the CMS goes away later, the lane tries again as soon as if nothing had happened before.
func TestOutlook_ATroubleEndsWithItsPauses(t *testing.T) {
	t.Parallel()
	o := newOutlook(Backoff{Min: time.Second, Max: time.Minute})
	now := time.Now()
	plan := pausePlan{cause: "away", delay: time.Minute}
	for range 90 {
		now = now.Add(o.planPause(plan, now))
	}

	if grown := o.planPause(plan, now); grown < 5*time.Second {
		t.Errorf("after 90 pauses got one of %s, want it grown to 5s at least", grown)
	}

	first := o.planPause(plan, now.Add(2*time.Minute))
	if want := o.backoff.longestDelay(1); first != want {
		t.Errorf("got a first pause of %s in the next trouble, want %s", first, want)
	}
}

// In the first minute the scout tries once a second. It does not hurry if the CMS has too much to
// do, or if operators chose the pauses.
func TestOutlook_TheScoutHurriesInTheFirstMinute(t *testing.T) {
	t.Parallel()
	usual := Backoff{Min: time.Second, Max: 5 * time.Minute}
	for name, c := range map[string]struct {
		backoff    Backoff
		isOverload bool
		lasts      time.Duration
		want       time.Duration
	}{
		"AtOnce":   {usual, false, 0, time.Second},
		"Soon":     {usual, false, 20 * time.Second, time.Second},
		"AMinute":  {usual, false, time.Minute, time.Second},
		"Later":    {usual, false, 9 * time.Minute, 61 * time.Second},
		"Overload": {usual, true, 24 * time.Second, 3 * time.Second},
		"Steps": {Backoff{Steps: []time.Duration{2 * time.Second, time.Hour}}, false,
			24 * time.Second, 3 * time.Second},
		"LongMinimum": {Backoff{Min: 20 * time.Second, Max: time.Hour}, false, 30 * time.Second,
			20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, now := newOutlook(c.backoff), time.Now()
			plan := pausePlan{cause: "away", delay: 5 * time.Minute, isOverload: c.isOverload}
			for at := time.Duration(0); at <= c.lasts; at += time.Second {
				got := o.planPause(plan, now.Add(at))
				if at == c.lasts && got != c.want {
					t.Errorf("got a pause of %s, want %s", got, c.want)
				}
			}
		})
	}
}
