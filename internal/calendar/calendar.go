package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
)

// Settings are the settings of a calendar.
type Settings struct {
	TimeZone string   `yaml:"timezone"` // name in the tz database; empty = UTC
	Closed   []Window `yaml:"closed"`
}

// Window is a closed time. If From and To are hours (22:00), the window repeats each week on the
// given Days. If From and To are dates (2026-12-24T12:00), the window occurs once.
type Window struct {
	Name string `yaml:"name"`
	// days on which a weekly window begins, such as mon; empty = each day
	Days []string `yaml:"days"`
	From string   `yaml:"from"`
	// if To is an hour that is not after From, the window ends on the next day
	To string `yaml:"to"`
}

// Calendar computes closed times. The zero value is always open. A Calendar is safe for concurrent
// use.
type Calendar struct {
	zone   *time.Location
	weekly []weeklyWindow
	spans  []dateWindow
}

// weeklyWindow is a window that occurs each week.
type weeklyWindow struct {
	name     string
	days     [7]bool   // by time.Weekday
	from, to timeOfDay // a value of "to" above fullDay is on the next day
}

// dateWindow is a window that occurs once.
type dateWindow struct {
	name     string
	from, to time.Time
}

// New makes a calendar from settings. The error has one line for each problem.
func New(s Settings) (*Calendar, error) {
	c := &Calendar{zone: time.UTC}
	var problems []error
	if s.TimeZone != "" {
		zone, err := clock.LoadZone(s.TimeZone)
		if err != nil {
			problems = append(problems,
				fmt.Errorf("timezone %q is not one of the tz database, such as Europe/Berlin",
					s.TimeZone))
		} else {
			c.zone = zone
		}
	}

	for i, w := range s.Closed {
		for _, err := range c.addWindow(w) {
			problems = append(problems, fmt.Errorf("closed[%d] (%s): %w", i, w.Name, err))
		}
	}

	if len(problems) == 0 && c.alwaysClosed() {
		problems = append(problems, errors.New("the weekly times are closed all week"))
	}

	return c, errors.Join(problems...)
}

// addWindow parses and adds one window, and returns all problems of the window.
func (c *Calendar) addWindow(w Window) (problems []error) {
	if strings.TrimSpace(w.Name) == "" {
		problems = append(problems,
			errors.New("name is missing: it is shown as the reason of the pause"))
	}

	if w.From == "" || w.To == "" {
		return append(problems, errors.New("from and to are needed"))
	}

	from, fromErr := parseClock(w.From)
	to, toErr := parseClock(w.To)
	if fromErr == nil && toErr == nil {
		return append(problems, c.addWeekly(w, from, to)...)
	}

	if fromErr == nil || toErr == nil {
		return append(problems, errors.New("from and to must be both an hour, such as 22:00, "+
			"or both a date, such as 2026-12-24T12:00"))
	}

	return append(problems, c.addSpan(w)...)
}

func (c *Calendar) addWeekly(w Window, from, to timeOfDay) (problems []error) {
	one := weeklyWindow{name: w.Name, from: from, to: to}
	if to <= from {
		one.to += fullDay
	}

	for _, name := range w.Days {
		d := slices.Index(dayNames[:], strings.ToLower(strings.TrimSpace(name)))
		if d < 0 {
			problems = append(problems,
				fmt.Errorf("day %q is not one of %s", name, strings.Join(dayNames[:], ", ")))
			continue
		}

		one.days[d] = true
	}

	if len(w.Days) == 0 {
		one.days = [7]bool{true, true, true, true, true, true, true}
	}

	if from >= fullDay {
		problems = append(problems, errors.New("from must be before 24:00"))
	}

	c.weekly = append(c.weekly, one)

	return problems
}

func (c *Calendar) addSpan(w Window) (problems []error) {
	if len(w.Days) > 0 {
		problems = append(problems, errors.New("days go with hours, not with dates"))
	}

	from, err := c.parseDate(w.From, false)
	if err != nil {
		problems = append(problems, fmt.Errorf("from: %w", err))
	}

	to, err := c.parseDate(w.To, true)
	if err != nil {
		problems = append(problems, fmt.Errorf("to: %w", err))
	}

	if len(problems) == 0 && !from.Before(to) {
		problems = append(problems, errors.New("from must be before to"))
	}

	c.spans = append(c.spans, dateWindow{w.Name, from, to})

	return problems
}

// At reports whether the calendar is closed at t. The reason has the names of the windows that
// contain t. If the calendar is closed, "until" is the time at which the calendar opens; otherwise
// "until" is zero.
func (c *Calendar) At(t time.Time) (closed bool, reason string, until time.Time) {
	var names []string
	until = c.endOfCovering(t, func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	if until.IsZero() {
		return false, "", time.Time{}
	}

	for next := until; !next.IsZero(); next = c.endOfCovering(until, func(string) {}) {
		until = next
	}

	return true, strings.Join(names, ", "), until.UTC()
}

// daysAhead is the number of days that Next examines, today included. It must be 15 for a window
// that occurs only on today's weekday and has already begun today. If the clocks skip this window
// in 7 days, it next occurs in 14 days.
const daysAhead = 15

// Next returns the first time after t at which the calendar closes or opens, or the zero time if
// there is none.
func (c *Calendar) Next(t time.Time) time.Time {
	if closed, _, until := c.At(t); closed {
		return until
	}

	var next time.Time
	consider := func(from time.Time) {
		if from.After(t) && (next.IsZero() || from.Before(next)) {
			next = from
		}
	}

	for _, s := range c.spans {
		consider(s.from)
	}

	for i := range c.weekly {
		for ahead := range daysAhead {
			// If the clocks skip the whole window, "from" equals "to", and the calendar stays open
			// on that day.
			if from, to, ok := c.weekly[i].windowOn(t.In(c.zone), ahead); ok && from.Before(to) {
				consider(from)
			}
		}
	}

	if next.IsZero() {
		return next
	}

	return next.UTC()
}

// endOfCovering returns the latest end of the windows that contain t, or the zero time if no window
// contains t. It calls the function report with the name of each of these windows.
func (c *Calendar) endOfCovering(t time.Time, report func(name string)) (end time.Time) {
	consider := func(name string, from, to time.Time) {
		if from.After(t) || !to.After(t) {
			return
		}

		report(name)
		if to.After(end) {
			end = to
		}
	}

	for _, s := range c.spans {
		consider(s.name, s.from, s.to)
	}

	if len(c.weekly) == 0 {
		return end
	}

	local := t.In(c.zone)
	for i := range c.weekly {
		// a window that began two days ago ends today at the latest
		for ahead := -2; ahead <= 0; ahead++ {
			if from, to, ok := c.weekly[i].windowOn(local, ahead); ok {
				consider(c.weekly[i].name, from, to)
			}
		}
	}

	return end
}

// windowOn returns the window that begins on the day that is "ahead" days after the date of local.
// If no window begins on that day, ok is false.
func (w *weeklyWindow) windowOn(local time.Time, ahead int) (from, to time.Time, ok bool) {
	y, m, d := local.Date()
	date := time.Date(y, m, d+ahead, 0, 0, 0, 0, time.UTC)
	if !w.days[date.Weekday()] {
		return from, to, false
	}
	return instantOf(date, w.from, local.Location(), false),
		instantOf(date, w.to, local.Location(), true), true
}

// alwaysClosed reports whether the weekly windows cover a whole week.
func (c *Calendar) alwaysClosed() bool {
	monday := time.Date(2024, 1, 8, 0, 0, 0, 0, time.UTC)
	week := &Calendar{zone: time.UTC, weekly: c.weekly}
	t := monday
	for t.Before(monday.AddDate(0, 0, 7)) {
		if t = week.endOfCovering(t, func(string) {}); t.IsZero() {
			return false
		}
	}

	return true
}
