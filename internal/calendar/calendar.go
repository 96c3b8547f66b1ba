package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Settings is the calendar as it is written.
type Settings struct {
	TimeZone string   `yaml:"timezone"` // of the tz database; empty = UTC
	Closed   []Window `yaml:"closed"`
}

// Window is a closed time: each week, From and To being hours (22:00), or once, From and To
// being dates (2026-12-24T12:00).
type Window struct {
	Name string   `yaml:"name"`
	Days []string `yaml:"days"` // of From, where that is an hour; empty = each day
	From string   `yaml:"from"`
	To   string   `yaml:"to"` // an hour that is not after From is the next day's
}

// Calendar is what Settings say. The zero value is always open. Safe for concurrent use.
type Calendar struct {
	zone   *time.Location
	weekly []weekly
	spans  []span
}

// weekly is a window of each week.
type weekly struct {
	name     string
	days     [7]bool // by time.Weekday
	from, to clock   // to may be over 24 hours
}

// span is a window that comes once.
type span struct {
	name     string
	from, to time.Time
}

// New reads settings. The error names every problem, one a line.
func New(s Settings) (*Calendar, error) {
	c := &Calendar{zone: time.UTC}
	var problems []error
	if s.TimeZone != "" {
		zone, err := time.LoadLocation(s.TimeZone)
		if err != nil || s.TimeZone == "Local" {
			problems = append(problems, fmt.Errorf("timezone %q is not one of the tz database, such as Europe/Berlin", s.TimeZone))
		} else {
			c.zone = zone
		}
	}
	for i, w := range s.Closed {
		for _, err := range c.add(w) {
			problems = append(problems, fmt.Errorf("closed[%d] (%s): %w", i, w.Name, err))
		}
	}
	if len(problems) == 0 && c.alwaysClosed() {
		problems = append(problems, errors.New("the weekly times leave no moment open"))
	}
	return c, errors.Join(problems...)
}

// add reads one window, and gives all that is wrong with it.
func (c *Calendar) add(w Window) (problems []error) {
	if strings.TrimSpace(w.Name) == "" {
		problems = append(problems, errors.New("name is missing: it is the reason that people are told"))
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
		return append(problems, errors.New("from and to are both an hour, such as 22:00, or both a date, such as 2026-12-24T12:00"))
	}
	return append(problems, c.addSpan(w)...)
}

func (c *Calendar) addWeekly(w Window, from, to clock) (problems []error) {
	one := weekly{name: w.Name, from: from, to: to}
	if to <= from {
		one.to += day
	}
	for _, name := range w.Days {
		d := slices.Index(dayNames[:], strings.ToLower(strings.TrimSpace(name)))
		if d < 0 {
			problems = append(problems, fmt.Errorf("day %q is not one of %s", name, strings.Join(dayNames[:], ", ")))
			continue
		}
		one.days[d] = true
	}
	if len(w.Days) == 0 {
		one.days = [7]bool{true, true, true, true, true, true, true}
	}
	if from >= day {
		problems = append(problems, errors.New("from is before 24:00"))
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
	c.spans = append(c.spans, span{w.Name, from, to})
	return problems
}

// At says whether a moment is closed, by which windows, and until when, windows that follow
// each other taken together.
func (c *Calendar) At(t time.Time) (closed bool, reason string, until time.Time) {
	var names []string
	until = c.covering(t, func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	if until.IsZero() {
		return false, "", time.Time{}
	}
	for next := until; !next.IsZero(); next = c.covering(until, func(string) {}) {
		until = next
	}
	return true, strings.Join(names, ", "), until.UTC()
}

// Next is the next moment at which it closes or opens; zero = it never does.
func (c *Calendar) Next(t time.Time) time.Time {
	if closed, _, until := c.At(t); closed {
		return until
	}
	var next time.Time
	note := func(from time.Time) {
		if from.After(t) && (next.IsZero() || from.Before(next)) {
			next = from
		}
	}
	for _, s := range c.spans {
		note(s.from)
	}
	for i := range c.weekly {
		// A week and a day: today's may be over.
		for ahead := range 9 {
			// In an hour that the clocks leave out nothing closes.
			if from, to, ok := c.weekly[i].on(t.In(c.zone), ahead); ok && from.Before(to) {
				note(from)
			}
		}
	}
	if next.IsZero() {
		return next
	}
	return next.UTC()
}

// covering tells the names of the windows around a moment, and gives the end of the last of
// them to end; zero = there is none.
func (c *Calendar) covering(t time.Time, tell func(name string)) (end time.Time) {
	note := func(name string, from, to time.Time) {
		if from.After(t) || !to.After(t) {
			return
		}
		tell(name)
		if to.After(end) {
			end = to
		}
	}
	for _, s := range c.spans {
		note(s.name, s.from, s.to)
	}
	if len(c.weekly) == 0 {
		return end
	}
	local := t.In(c.zone)
	for i := range c.weekly {
		for ahead := -2; ahead <= 0; ahead++ { // one of two days ago ends today at the latest
			if from, to, ok := c.weekly[i].on(local, ahead); ok {
				note(c.weekly[i].name, from, to)
			}
		}
	}
	return end
}

// on gives the window that begins so many days after a moment's day, if one does.
func (w *weekly) on(local time.Time, ahead int) (from, to time.Time, ok bool) {
	y, m, d := local.Date()
	date := time.Date(y, m, d+ahead, 0, 0, 0, 0, time.UTC)
	if !w.days[date.Weekday()] {
		return from, to, false
	}
	return instant(date, w.from, local.Location(), false), instant(date, w.to, local.Location(), true), true
}

// alwaysClosed says whether the weekly windows cover a whole week.
func (c *Calendar) alwaysClosed() bool {
	monday := time.Date(2024, 1, 8, 0, 0, 0, 0, time.UTC)
	week := &Calendar{zone: time.UTC, weekly: c.weekly}
	t := monday
	for t.Before(monday.AddDate(0, 0, 7)) {
		if t = week.covering(t, func(string) {}); t.IsZero() {
			return false
		}
	}
	return true
}
