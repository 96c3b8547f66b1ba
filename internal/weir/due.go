package weir

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/sosodev/duration"
)

// maxDueTime is the latest due time that Weir accepts. Storage cannot store times after the year
// 9999.
var maxDueTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

var (
	errTooLate  = errors.New("lies after the year 9999")
	errNegative = errors.New("is negative")
)

// minDueTime replaces earlier due times, which all mean "now". Storage cannot store times before
// the year 1601, and some upstreams send the year 1 for "not set".
var minDueTime = time.Unix(0, 0).UTC()

// HasJSONYear reports whether the year of t in UTC is 0 to 9999. A time with another year cannot be
// written as JSON.
func HasJSONYear(t time.Time) bool { return t.UTC().Year() >= 0 && t.UTC().Year() <= 9999 }

// ParseMoment parses a due time in RFC 3339. The text must have the offset from UTC, because a
// local time alone can mean different moments. For times before 1970 ParseMoment returns the
// beginning of 1970. For times after the year 9999 it returns an error.
func ParseMoment(text string) (time.Time, error) {
	t, err := ParseTime(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w%s", err, explainLostPlus(text))
	}
	return limitMoment(t)
}

// limitMoment returns a due time within the times that storage can store.
func limitMoment(t time.Time) (time.Time, error) {
	switch {
	case t.UTC().Year() > 9999:
		return time.Time{}, errTooLate
	case t.After(maxDueTime): // the largest time of a library, such as 9999-12-31T23:59:59.9999999Z
		return maxDueTime, nil
	case t.Before(minDueTime):
		return minDueTime, nil
	}

	return t.UTC(), nil
}

// ParseMomentIn is ParseMoment for the times of the trade; see ParseTradeTime.
func ParseMomentIn(text string, zone *time.Location) (time.Time, error) {
	t, err := ParseTradeTime(text, zone)
	if err != nil {
		return time.Time{}, err
	}
	return limitMoment(t)
}

// explainLostPlus returns a hint for an error message if the text would be a valid time with "+" in
// place of its first space. A "+" in a query parameter means a space. For other texts
// explainLostPlus returns "".
func explainLostPlus(text string) string {
	if _, err := ParseTime(strings.Replace(text, " ", "+", 1)); err != nil {
		return ""
	}
	return "; in an address write + as %2B"
}

// MomentOfSeconds returns the due time that is a number of seconds after the beginning of 1970,
// rounded to microseconds. For times before 1970 it returns the beginning of 1970. For times after
// the year 9999, and for NaN, it returns an error.
func MomentOfSeconds(seconds float64) (time.Time, error) {
	switch {
	case math.IsNaN(seconds):
		return time.Time{}, errors.New("is not a number")
	case seconds > float64(maxDueTime.Unix()):
		return time.Time{}, fmt.Errorf("%w; it counts seconds since 1970", errTooLate)
	case seconds < 0:
		return minDueTime, nil
	}

	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(fraction*1e6))*1e3).UTC(), nil
}

// isoDuration matches a duration in ISO 8601, with its units in their order and each at most once.
// The library also accepts other texts: to it, "P" and "PT" are 0 s, so a misspelt delay would
// deliver a message at once.
var isoDuration = regexp.MustCompile(`^-?P(?:[0-9.]+Y)?(?:[0-9.]+M)?(?:[0-9.]+W)?(?:[0-9.]+D)?` +
	`(?:T(?:[0-9.]+H)?(?:[0-9.]+M)?(?:[0-9.]+S)?)?$`)

// parseISODuration parses a duration in ISO 8601. Both the whole text and the part behind T, if
// there is one, must have a number.
func parseISODuration(text string) (*duration.Duration, error) {
	if !isoDuration.MatchString(text) || strings.HasSuffix(text, "P") ||
		strings.HasSuffix(text, "T") {
		return nil, duration.ErrUnexpectedInput
	}
	return duration.Parse(text)
}

// ParseDelay parses a delay, and returns the time "from" plus the delay. The delay is a Go duration
// (90s, 1h30m) or a duration in ISO 8601 (PT90S, P1DT2H), and must not be negative. Years, months,
// weeks and days must be whole numbers, and follow the calendar in UTC. If the result is after the
// year 9999, ParseDelay returns an error.
func ParseDelay(text string, from time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return addDelay(from, d)
	}

	d, err := parseISODuration(text)
	if err != nil || !areWhole(d.Years, d.Months, d.Weeks, d.Days) {
		return time.Time{}, fmt.Errorf(
			"%s is neither a duration such as 90s or 1h30m nor one by ISO 8601 such as PT90S or P1DT2H",
			quoteInput(text))
	}

	seconds := d.Hours*3600 + d.Minutes*60 + d.Seconds
	switch {
	case d.Negative:
		return time.Time{}, errNegative
	case d.Years+d.Months/12+(7*d.Weeks+d.Days)/365 > 9999 || seconds > math.MaxInt64/1e9:
		return time.Time{}, errTooLate
	}

	t := from.UTC().AddDate(int(d.Years), int(d.Months), 7*int(d.Weeks)+int(d.Days))

	return addDelay(t, time.Duration(seconds*float64(time.Second)))
}

func areWhole(numbers ...float64) bool {
	for _, n := range numbers {
		if n != math.Trunc(n) {
			return false
		}
	}
	return true
}

func addDelay(from time.Time, d time.Duration) (time.Time, error) {
	t := from.Add(d)
	switch {
	case d < 0:
		return time.Time{}, errNegative
	case t.After(maxDueTime):
		return time.Time{}, errTooLate
	}

	return t.UTC(), nil
}

// quoteInput shortens and quotes a caller's text for an error message.
func quoteInput(text string) string {
	const most = 64
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}
