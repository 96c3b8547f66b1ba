package calendar

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// clock is an hour of a day in minutes; over a day, of the next one.
type clock int

const day clock = 24 * 60

var dayNames = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

var clockText = regexp.MustCompile(`^([01]?[0-9]|2[0-4]):([0-5][0-9])$`)

func parseClock(text string) (clock, error) {
	m := clockText.FindStringSubmatch(text)
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
	if c := clock(60*hours + minutes); c <= day {
		return c, nil
	}
	return 0, fmt.Errorf("%q is after 24:00", text)
}

// parseDate reads a date, with an hour or without.
func (c *Calendar) parseDate(text string, last bool) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return atWall(t, c.zone, last), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither an hour, such as 22:00, nor a date, such as 2026-12-24T12:00", text)
}

// instant is the moment at which the clocks of a zone show an hour of a date.
func instant(date time.Time, at clock, zone *time.Location, last bool) time.Time {
	return atWall(date.Add(time.Duration(at)*time.Minute), zone, last)
}

// atWall is the moment at which the clocks of a zone show what wall does in UTC. Where they
// show it twice it is the first time or the last, where never the moment of the change.
func atWall(wall time.Time, zone *time.Location, last bool) time.Time {
	// No zone changes its clocks twice in two days.
	_, before := wall.Add(-24 * time.Hour).In(zone).Zone()
	_, after := wall.Add(24 * time.Hour).In(zone).Zone()
	first, second := wall.Add(-time.Duration(before)*time.Second), wall.Add(-time.Duration(after)*time.Second)
	if second.Before(first) {
		first, second = second, first
	}
	firstShown, secondShown := shows(first, wall, zone), shows(second, wall, zone)
	switch {
	case firstShown && (!last || !secondShown):
		return first
	case secondShown:
		return second
	}
	change, _ := second.In(zone).ZoneBounds()
	return change
}

// shows says whether the clocks of a zone show at a moment what wall does in UTC.
func shows(t, wall time.Time, zone *time.Location) bool {
	_, offset := t.In(zone).Zone()
	return t.Add(time.Duration(offset) * time.Second).Equal(wall)
}
