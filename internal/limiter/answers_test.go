package limiter

import (
	"net/http"
	"testing"
	"time"
)

func TestReadPause(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const second = time.Second
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}

	usedUp := func(reset string) http.Header {
		return header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset)
	}

	for name, test := range map[string]struct {
		status int
		header http.Header
		want   time.Duration
	}{
		"None":             {429, header(), 0},
		"Seconds":          {429, header("Retry-After", "7"), 7 * second},
		"Date":             {503, header("Retry-After", "Sun, 01 Mar 2026 12:00:30 GMT"), 30 * second},
		"DateOver":         {503, header("Retry-After", "Sun, 01 Mar 2026 11:00:30 GMT"), 0},
		"OtherStatus":      {500, header("Retry-After", "7"), 0},
		"OwnHeader":        {429, header("X-Reset-In", "9"), 9 * second},
		"UsedUp":           {200, usedUp("30"), 30 * second},
		"UsedUpUnix":       {200, usedUp("1772366430"), 30 * second},
		"UsedUpMilli":      {200, usedUp("1772366430000"), 30 * second},
		"UsedUpASecond":    {200, usedUp("1"), 0},
		"RefusedASecond":   {429, usedUp("1"), second},
		"SomeLeft":         {200, header("X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "30"), 0},
		"Fields":           {200, header("RateLimit-Remaining", "0", "RateLimit-Reset", "12"), 12 * second},
		"Structured":       {200, header("RateLimit", `"burst";r=3;t=9, "day";r=0;t=40`), 40 * second},
		"StructuredLeft":   {200, header("RateLimit", `"burst";r=3;t=9`), 0},
		"EarlierDraft":     {200, header("RateLimit", "limit=100, remaining=0, reset=50"), 50 * second},
		"Negative":         {429, header("Retry-After", "-5"), 0},
		"TooLong":          {429, header("Retry-After", "1e300"), time.Hour},
		"NotANumber":       {429, header("Retry-After", "NaN"), 0},
		"Infinite":         {429, header("Retry-After", "Inf"), time.Hour},
		"Text":             {429, header("Retry-After", "soon", "RateLimit", ";;;r=;t"), 0},
		"UnixFarAway":      {200, usedUp("4102444800"), time.Hour},
		"RemainingIsWords": {200, header("X-RateLimit-Remaining", "none", "X-RateLimit-Reset", "30"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readPause(test.status, test.header, "X-Reset-In", now)
			if (got - test.want).Abs() > time.Millisecond {
				t.Errorf("got a pause of %s, want %s", got, test.want)
			}
		})
	}
}

func TestStorageClock_Bounds(t *testing.T) {
	t.Parallel()
	local := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const offset = 90 * time.Minute
	var c storageClock
	// the write was done at the end of a call of 40 ms: the estimate is 20 ms off, at most
	c.addSample(local.Add(offset), local.Add(-40*time.Millisecond), local)
	if got := (c.offset() - offset).Abs(); got > 20*time.Millisecond {
		t.Errorf("off by %s after one sample, want 20 ms at most", got)
	}

	// one at the beginning of a call: both together are exact
	local = local.Add(10 * time.Second)
	c.addSample(local.Add(offset), local, local.Add(40*time.Millisecond))
	if got := (c.offset() - offset).Abs(); got > 3*time.Millisecond {
		t.Errorf("off by %s after two samples, want 3 ms at most", got)
	}

	// a less exact sample changes nothing
	before := c
	local = local.Add(time.Second)
	c.addSample(local.Add(offset), local.Add(-time.Second), local.Add(time.Second))
	if got := (c.offset() - before.offset()).Abs(); got > time.Millisecond {
		t.Errorf("moved by %s with a sample of a long call, want 1 ms at most", got)
	}

	// the clock of storage is set back: the new sample counts
	back := c.addSample(local.Add(offset-time.Hour), local, local)
	if (back-time.Hour).Abs() > 50*time.Millisecond || c.offset() != offset-time.Hour {
		t.Errorf("set back by %s to %s, want an hour and %s", back, c.offset(), offset-time.Hour)
	}
}

// A damaged or hostile row makes no pace that is faster than the rate, or that stands still.
func TestPace_Repair(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0, -1, 2, 1e-300, 1e300} {
		p := pace{share: share}
		if p.repair(); p.share != 1 {
			t.Errorf("share %g became %g, want 1", share, p.share)
		}
	}

	p := pace{share: 1}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 100 {
		now = now.Add(2 * time.Second)
		p.slowDown(now)
	}

	if p.share != leastShare {
		t.Errorf("share %g after a hundred 429, want %g", p.share, leastShare)
	}

	for range 100 {
		now = now.Add(time.Hour)
		p.recover(now)
	}

	if p.share != 1 || p.reason != "" {
		t.Errorf("share %g, reason %q after hundred recoveries, want 1 and none", p.share, p.reason)
	}
}
