package weir

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file reads times as the standards of publishers, news agencies and feeds write them.

// isoTime matches a time or date of ISO 8601 in its extended (2030-01-31T08:00) or basic form
// (20300131T0800). Seconds, their fraction and the offset may be missing. Each form has isoGroups
// groups, and those of the extended form come first.
var isoTime = regexp.MustCompile(`^(?:` +
	`([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(\.[0-9]+)?)?` +
	isoOffset + `)?|` +
	`([0-9]{4})([0-9]{2})([0-9]{2})(?:[Tt]([0-9]{2})([0-9]{2})(?:([0-9]{2})(\.[0-9]+)?)?` +
	isoOffset + `)?)$`)

const isoOffset = `([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?`

// isoGroups is the number of groups of one form in isoTime.
const isoGroups = 8

// mailTime matches a date of RFC 822, as its successors allow it: the weekday, the seconds and the
// century may be missing.
var mailTime = regexp.MustCompile(
	`^(?:([A-Za-z]{3}), *)?([0-9]{1,2}) +([A-Za-z]{3}) +([0-9]{4}|[0-9]{2})` +
		` +([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?(?: +([+-][0-9]{4}|[A-Za-z]{1,3}))?$`)

// mailZones are the offsets of the zones that RFC 822 names, in hours. RFC 2822 gives the letters
// of the military zones no meaning, except Z.
var mailZones = map[string]int{"UT": 0, "UTC": 0, "GMT": 0, "Z": 0, "EST": -5, "EDT": -4,
	"CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7}

var (
	mailMonths = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct",
		"nov", "dec"}
	mailDays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// wallTime is a time as a text writes it.
type wallTime struct {
	at        time.Time // the date and time of day, as if they were in UTC
	offset    time.Duration
	hasOffset bool
}

// ParseTradeTime parses a time: RFC 3339, ISO 8601 in the basic form or without seconds, a date, or
// RFC 822. A time without an offset is a local time of the zone. If the zone is nil, such a time is
// refused. A date is the beginning of that day.
func ParseTradeTime(text string, zone *time.Location) (time.Time, error) {
	if t, err := ParseTime(text); err == nil {
		return t, nil
	}

	wall, isTime := parseISOTime(text)
	if !isTime {
		wall, isTime = parseMailTime(text)
	}

	switch {
	case !isTime:
		return time.Time{}, fmt.Errorf("%w, nor one by ISO 8601 or RFC 822", notTimeError(text))
	case wall.hasOffset:
		return wall.at.Add(-wall.offset).In(time.FixedZone("", int(wall.offset/time.Second))), nil
	case zone == nil:
		return time.Time{}, fmt.Errorf(
			"%w; timezone in the contract names the zone of times without an offset",
			notTimeError(text))
	}

	return resolveLocal(wall.at, zone), nil
}

// resolveLocal returns the instant of a local time. When the clocks are set back, some local times
// occur twice: resolveLocal returns the earlier instant. When they are set forward, some local times
// do not occur: such a time moves forward by the same step. The parameter wall has the local time as
// if it were in UTC.
func resolveLocal(wall time.Time, zone *time.Location) time.Time {
	offsetAt := func(t time.Time) time.Duration {
		_, seconds := t.In(zone).Zone()
		return time.Duration(seconds) * time.Second
	}

	// more than any offset, and less than the time between two changes of clocks
	const around = 24 * time.Hour
	before, after := offsetAt(wall.Add(-around)), offsetAt(wall.Add(around))

	// The larger offset is the earlier instant.
	for _, offset := range []time.Duration{max(before, after), min(before, after)} {
		if t := wall.Add(-offset); offsetAt(t) == offset {
			return t.In(zone)
		}
	}

	return wall.Add(-before).In(zone)
}

func parseISOTime(text string) (wallTime, bool) {
	m := isoTime.FindStringSubmatch(text)
	if m == nil {
		return wallTime{}, false
	}

	g := m[1 : 1+isoGroups]
	if g[0] == "" {
		g = m[1+isoGroups:]
	}

	w, isTime := newWallTime(g[0], g[1], g[2], g[3], g[4], g[5])
	if !isTime || g[6] != "" && !w.addFraction(g[6]) {
		return wallTime{}, false
	}

	return w, w.setOffset(strings.Replace(g[7], ":", "", 1))
}

func parseMailTime(text string) (wallTime, bool) {
	m := mailTime.FindStringSubmatch(text)
	if m == nil {
		return wallTime{}, false
	}

	year, month := m[4], slices.Index(mailMonths, strings.ToLower(m[3]))+1
	if len(year) == 2 && year < "50" { // RFC 2822, section 4.3
		year = "20" + year
	} else if len(year) == 2 {
		year = "19" + year
	}

	w, isTime := newWallTime(year, strconv.Itoa(month), m[2], m[5], m[6], m[7])
	if !isTime {
		return wallTime{}, false
	}

	// If the weekday and the date disagree, one of them is wrong, and nothing shows which.
	if m[1] != "" && slices.Index(mailDays, strings.ToLower(m[1])) != int(w.at.Weekday()) {
		return wallTime{}, false
	}

	if hours, isNamed := mailZones[strings.ToUpper(m[8])]; isNamed {
		w.offset, w.hasOffset = time.Duration(hours)*time.Hour, true
		return w, true
	}

	return w, m[8] == "" || len(m[8]) == 5 && w.setOffset(m[8])
}

// newWallTime returns the time with these digits; "" is 0 in the time of day. It returns false if
// there is no such day or time.
func newWallTime(year, month, day, hour, minute, second string) (wallTime, bool) {
	number := func(digits string) int {
		n, _ := strconv.Atoi(digits) // the regular expressions match digits only
		return n
	}

	y, mo, d := number(year), number(month), number(day)
	h, mi, s := number(hour), number(minute), number(second)
	if h > 23 || mi > 59 || s > 59 {
		return wallTime{}, false
	}

	at := time.Date(y, time.Month(mo), d, h, mi, s, 0, time.UTC)

	return wallTime{at: at}, at.Month() == time.Month(mo) && at.Day() == d
}

// addFraction adds the fraction of a second, such as ".5".
func (w *wallTime) addFraction(text string) bool {
	// nanoseconds are the smallest part
	d, err := time.ParseDuration("0" + text[:min(len(text), 10)] + "s")
	w.at = w.at.Add(d)
	return err == nil
}

// setOffset sets the offset from a text such as Z, +01 or +0130. "" = there is none.
func (w *wallTime) setOffset(text string) bool {
	if w.hasOffset = text != ""; !w.hasOffset || strings.EqualFold(text, "Z") {
		return true
	}

	hours, err := strconv.Atoi(text[1:3])
	minutes := 0
	if len(text) == 5 && err == nil {
		minutes, err = strconv.Atoi(text[3:])
	}

	w.offset = time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if text[0] == '-' {
		w.offset = -w.offset
	}

	return err == nil && hours < 24 && minutes < 60
}
