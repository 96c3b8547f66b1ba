package recur

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"weir/internal/weir"
)

// lastYear is the last year in which something can be due.
const lastYear = 9999

// Plan says when a schedule is due.
//
// The cron library is asked in UTC only, where no hour is skipped or doubled: it finds the
// next local time as a clock on the wall would show it, and here that is turned into a
// moment. Asked in a zone of its own, it runs a fixed time twice when clocks are set back
// (30 2 * * * in Berlin), and does not tell which local times were left out.
type Plan struct {
	spec       *cron.SpecSchedule // nil for @every
	every      int64              // seconds
	anchor     time.Time          // of every
	everyHour  bool               // intervals: a doubled hour counts twice
	zone       *time.Location
	start, end time.Time
}

// parser reads what a user may write.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

const everyPrefix = "@every "

// NewPlan makes the plan of a definition; anchor is what @every counts from when the
// definition has no start. The error is Invalid and names every problem.
func NewPlan(d Definition, anchor time.Time) (*Plan, error) {
	p := &Plan{start: d.Start, end: d.End, anchor: anchor.Truncate(time.Second), zone: time.UTC}
	if !d.Start.IsZero() {
		p.anchor = d.Start.Truncate(time.Second)
	}
	var problems []weir.Problem
	if err := p.parse(strings.TrimSpace(d.Cron)); err != nil {
		problems = append(problems, weir.Problem{Path: "cron", Rule: "cron", Message: err.Error()})
	}
	zone, err := time.LoadLocation(d.TimeZone)
	if err != nil || d.TimeZone == "Local" {
		problems = append(problems, weir.Problem{Path: "timeZone", Rule: "timeZone", Message: "this is not the name of a time zone, as Europe/Berlin is"})
	} else {
		p.zone = zone
	}
	if !d.Start.IsZero() && !d.End.IsZero() && !d.End.After(d.Start) {
		problems = append(problems, weir.Problem{Path: "end", Rule: "after", Message: "the end must be after the start"})
	}
	if len(problems) > 0 {
		return nil, invalid("the schedule cannot be read", problems...)
	}
	return p, nil
}

func invalid(message string, problems ...weir.Problem) error {
	return &weir.Error{Kind: weir.Invalid, Op: "schedule", Message: message, Problems: problems}
}

// maxCron is the length of a definition's fields: more than anyone needs, and it fits a row.
const maxCron = 256

func (p *Plan) parse(text string) error {
	if len(text) > maxCron {
		return fmt.Errorf("the fields have %d characters and may have %d", len(text), maxCron)
	}
	if every, ok := strings.CutPrefix(text, everyPrefix); ok {
		return p.parseEvery(strings.TrimSpace(every))
	}
	if strings.Contains(text, "TZ=") {
		return fmt.Errorf("the time zone has a field of its own: timeZone")
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return err
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return fmt.Errorf("unrecognized descriptor: %s", text)
	}
	spec.Location = time.UTC
	p.spec = spec
	for _, bits := range []uint64{spec.Second, spec.Minute, spec.Hour, spec.Dom, spec.Month, spec.Dow} {
		if bits&^(1<<63) == 0 {
			return fmt.Errorf("a field is empty")
		}
	}
	const hours = 1<<24 - 1
	p.everyHour = spec.Hour&hours == hours
	if p.nextWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return fmt.Errorf("this day never comes")
	}
	return nil
}

// parseEvery takes whole seconds only: the library would round without a word.
func (p *Plan) parseEvery(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("@every needs a duration, such as 90s or 1h30m")
	}
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("@every takes whole seconds, at least one")
	}
	p.every, p.everyHour = int64(d/time.Second), true
	return nil
}

// Next gives the first occurrence after the moment given; zero when there is none.
func (p *Plan) Next(after time.Time) time.Time {
	if !p.start.IsZero() && after.Before(p.start) {
		after = p.start.Add(-1)
	}
	next := p.next(after)
	if next.IsZero() || next.Year() > lastYear || (!p.end.IsZero() && !next.Before(p.end)) {
		return time.Time{}
	}
	return next.UTC()
}

func (p *Plan) next(after time.Time) time.Time {
	if p.every > 0 {
		passed := after.Unix() - p.anchor.Unix()
		if passed < 0 {
			return p.anchor
		}
		return time.Unix(p.anchor.Unix()+(passed/p.every+1)*p.every, 0).UTC()
	}
	return p.nextLocal(after)
}

// nextLocal goes from one change of the zone's offset to the next: between two of them,
// local times and moments follow each other in the same order.
func (p *Plan) nextLocal(after time.Time) time.Time {
	at := after.In(p.zone) // in the stretch that is looked at
	for {
		offset, end := offsetAt(at), stretchEnd(at)
		wall := p.nextWall(after.UTC().Add(offset))
		if wall.IsZero() {
			return time.Time{}
		}
		found := wall.Add(-offset).In(p.zone)
		switch {
		case !end.IsZero() && !found.Before(end):
			after, at = end.Add(-1), end
		case p.everyHour || !repeats(found):
			return found
		default:
			after, at = found, found
		}
	}
}

// nextWall finds the next local time that the fields name, written as if it were UTC. The
// library looks five years ahead; from one 29 February to the next it can be eight.
func (p *Plan) nextWall(after time.Time) time.Time {
	for range 3 {
		if after.Year() > lastYear {
			break
		}
		if next := p.spec.Next(after); !next.IsZero() {
			return next
		}
		after = after.AddDate(5, 0, 0)
	}
	return time.Time{}
}

// repeats says whether the moment's local time has come once already, before the clocks
// were set back.
func repeats(at time.Time) bool {
	start, _ := at.ZoneBounds()
	if start.IsZero() {
		return false
	}
	before := start.Add(-1)
	back := offsetAt(before) - offsetAt(at)
	earlier := at.Add(-back)
	since, _ := before.ZoneBounds()
	return back > 0 && earlier.Before(start) && (since.IsZero() || !earlier.Before(since))
}

// willRepeat says whether the moment's local time comes once more, after the clocks are
// set back.
func willRepeat(at time.Time) bool {
	end := stretchEnd(at)
	if end.IsZero() {
		return false
	}
	back := offsetAt(at) - offsetAt(end)
	again := at.Add(back)
	until := stretchEnd(end)
	return back > 0 && !again.Before(end) && (until.IsZero() || again.Before(until))
}

// stretchEnd gives a moment behind t up to which the zone's offset stays what it is at t,
// in the zone; zero = for ever. It need not be one at which the offset changes. Years
// behind the end of the tables end after 365 days in ZoneBounds, even leap years: on their
// last day it gives an end that has passed.
func stretchEnd(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		return t.Add(time.Hour)
	}
	return end
}

func offsetAt(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// countLimit bounds how many missed occurrences are counted one by one.
const countLimit = 10_000

// latest gives the last occurrence up to now and how many there are from the first one
// on, both included; where they are very many, the count stops.
func (p *Plan) latest(first, now time.Time) (time.Time, int64) {
	if !p.end.IsZero() && !now.Before(p.end) {
		now = p.end.Add(-1)
	}
	if p.every > 0 {
		n := max(0, (now.Unix()-first.Unix())/p.every)
		return time.Unix(first.Unix()+n*p.every, 0).UTC(), n + 1
	}
	last, count := first, int64(1)
	for next := p.Next(last); !next.IsZero() && !next.After(now); next = p.Next(last) {
		last = next
		if count++; count == countLimit {
			return p.near(last, now), count
		}
	}
	return last, count
}

// near gives the last occurrence up to now when there are too many to walk over: it looks
// back further and further, until it finds one.
func (p *Plan) near(known, now time.Time) time.Time {
	for _, back := range []time.Duration{time.Minute, time.Hour, 48 * time.Hour, 32 * 24 * time.Hour} {
		from := later(known, now.Add(-back))
		if last := p.walk(from, now); last.After(from) {
			return last
		}
	}
	return p.walk(known, now)
}

// walk goes from one occurrence to the next, up to now.
func (p *Plan) walk(last, now time.Time) time.Time {
	for next := p.Next(last); !next.IsZero() && !next.After(now); next = p.Next(next) {
		last = next
	}
	return last
}
