package calendar

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// timeOfDay is a time of day in minutes after midnight. A value above fullDay is on the next day.
type timeOfDay int

const fullDay timeOfDay = 24 * 60

var dayNames = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

var clockPattern = regexp.MustCompile(`^([01]?[0-9]|2[0-4]):([0-5][0-9])$`)

func parseClock(text string) (timeOfDay, error) {
	m := clockPattern.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is not an hour such as 22:00", text)
	}

	hours, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, err
	}

	minutes, err := strconv.Atoi(m[2])
	if err != nil {
		return 0, err
	}

	if c := timeOfDay(60*hours + minutes); c <= fullDay {
		return c, nil
	}

	return 0, fmt.Errorf("%q is after 24:00", text)
}

// parseDate parses a date with or without a time of day. For the argument "last", see
// instantAtWall.
func (c *Calendar) parseDate(text string, last bool) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04",
		"2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return instantAtWall(t, c.zone, last), nil
		}
	}

	return time.Time{}, fmt.Errorf(
		"%q is neither an hour, such as 22:00, nor a date, such as 2026-12-24T12:00", text)
}

// instantOf returns the instant at which clocks in zone show a time of day on a date. For the
// argument "last", see instantAtWall.
func instantOf(date time.Time, at timeOfDay, zone *time.Location, last bool) time.Time {
	return instantAtWall(date.Add(time.Duration(at)*time.Minute), zone, last)
}

// instantAtWall returns the instant at which clocks in zone show the date and time of wall. The
// time zone of wall is UTC, and has no meaning. If the clocks show that time twice, instantAtWall
// returns the second instant if "last" is true, and otherwise the first. If the clocks skip that
// time, instantAtWall returns the instant at which the clocks change.
func instantAtWall(wall time.Time, zone *time.Location, last bool) time.Time {
	// No zone changes its clocks twice in two days. So the zone's offset at this time equals the
	// offset one day before or the offset one day after.
	_, before := wall.Add(-24 * time.Hour).In(zone).Zone()
	_, after := wall.Add(24 * time.Hour).In(zone).Zone()
	first, second := wall.Add(-time.Duration(before)*time.Second),
		wall.Add(-time.Duration(after)*time.Second)
	if second.Before(first) {
		first, second = second, first
	}

	firstShown, secondShown := showsWall(first, wall, zone), showsWall(second, wall, zone)
	switch {
	case firstShown && (!last || !secondShown):
		return first
	case secondShown:
		return second
	}

	change, _ := second.In(zone).ZoneBounds()

	return change
}

// showsWall reports whether clocks in zone show the date and time of wall at the instant t.
func showsWall(t, wall time.Time, zone *time.Location) bool {
	_, offset := t.In(zone).Zone()
	return t.Add(time.Duration(offset) * time.Second).Equal(wall)
}
