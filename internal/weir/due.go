package weir

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sosodev/duration"
)

// lastMoment is the latest due time: storage keeps no later ones.
var lastMoment = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

var (
	errHorizon  = errors.New("lies after the year 9999")
	errNegative = errors.New("is negative")
)

// firstMoment stands for all that lies before it: the past is now, and storage keeps no
// times before the year 1601. Some upstreams send the year 1 for no time at all.
var firstMoment = time.Unix(0, 0).UTC()

// ParseMoment reads a due time by RFC 3339, which has an offset: a local time would mean
// another moment at each reader. What lies before 1970 becomes its beginning.
func ParseMoment(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%s is not a time by RFC 3339 with an offset, such as 2030-01-31T08:00:00+01:00", quoted(text))
	case t.After(lastMoment):
		return time.Time{}, errHorizon
	case t.Before(firstMoment):
		return firstMoment, nil
	}
	return t.UTC(), nil
}

// ParseDelay reads how long after from a message is due: a Go duration (90s, 1h30m) or one
// by ISO 8601 (PT90S, P1DT2H). Years, months, weeks and days are the calendar's, in UTC.
func ParseDelay(text string, from time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return delayed(from, d)
	}
	d, err := duration.Parse(text)
	if err != nil || !whole(d.Years, d.Months, d.Weeks, d.Days) {
		return time.Time{}, fmt.Errorf("%s is neither a duration such as 90s or 1h30m nor one by ISO 8601 such as PT90S or P1DT2H", quoted(text))
	}
	seconds := d.Hours*3600 + d.Minutes*60 + d.Seconds
	switch {
	case d.Negative:
		return time.Time{}, errNegative
	case d.Years+d.Months/12+(7*d.Weeks+d.Days)/365 > 9999 || seconds > math.MaxInt64/1e9:
		return time.Time{}, errHorizon
	}
	t := from.UTC().AddDate(int(d.Years), int(d.Months), 7*int(d.Weeks)+int(d.Days))
	return delayed(t, time.Duration(seconds*float64(time.Second)))
}

func whole(numbers ...float64) bool {
	for _, n := range numbers {
		if n != math.Trunc(n) {
			return false
		}
	}
	return true
}

func delayed(from time.Time, d time.Duration) (time.Time, error) {
	t := from.Add(d)
	switch {
	case d < 0:
		return time.Time{}, errNegative
	case t.After(lastMoment):
		return time.Time{}, errHorizon
	}
	return t.UTC(), nil
}

// quoted shows a caller's own text, within bounds.
func quoted(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}
