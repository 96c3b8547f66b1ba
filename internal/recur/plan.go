package recur

import (
	"fmt"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"weir/internal/clock"
	"weir/internal/weir"
)

// lastYear is the last year in which an occurrence can be due.
const lastYear = 9999

// Plan computes the due times of a schedule.
// Plan passes times to the cron library as if they were UTC, where no hour is skipped or repeated. The library finds
// the next local time as a wall clock would show it, and Plan turns that local time into an instant. If Plan passed
// times of the schedule's zone, the library would run a fixed time such as "30 2 * * *" in Berlin twice when clocks are
// set back. It would also not report which local times are skipped.
type Plan struct {
	spec       *cron.SpecSchedule // nil for @every
	every      int64              // length of the intervals of @every, in seconds; 0 = cron fields
	anchor     time.Time          // start of the first interval
	isInterval bool               // a local time that occurs twice is due twice
	zone       *time.Location
	start, end time.Time
}

// cronParser follows Vixie cron: if day of month and day of week are both restricted, a day that matches one is enough.
var cronParser = cron.MustNewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

const everyPrefix = "@every "

// NewPlan returns the plan of a definition. If the definition has no start, @every counts from the parameter "anchor".
// The error is Invalid and names every problem.
func NewPlan(d Definition, anchor time.Time) (*Plan, error) {
	p := &Plan{start: d.Start, end: d.End, anchor: anchor.Truncate(time.Second), zone: time.UTC}
	if !d.Start.IsZero() {
		p.anchor = d.Start.Truncate(time.Second)
	}
	var problems []weir.Problem
	if err := p.parseCron(strings.TrimSpace(d.Cron)); err != nil {
		problems = append(problems, weir.Problem{Path: "cron", Rule: "cron", Message: err.Error()})
	}
	zone, err := clock.LoadZone(d.TimeZone)
	if err != nil {
		problems = append(problems, weir.Problem{Path: "timeZone", Rule: "timeZone",
			Message: "this is not the name of a time zone such as Europe/Berlin"})
	} else {
		p.zone = zone
	}
	if !d.Start.IsZero() && !d.End.IsZero() && !d.End.After(d.Start) {
		problems = append(problems, weir.Problem{Path: "end", Rule: "after",
			Message: "the end must be after the start"})
	}
	if len(problems) > 0 {
		return nil, newInvalidError("the schedule cannot be read", problems...)
	}
	return p, nil
}

func newInvalidError(message string, problems ...weir.Problem) error {
	return &weir.Error{Kind: weir.Invalid, Op: "schedule", Message: message, Problems: problems}
}

// maxCronLength is the largest size of a cron expression in bytes. Without a limit, an expression might not fit a row.
const maxCronLength = 256

func (p *Plan) parseCron(text string) error {
	if len(text) > maxCronLength {
		return fmt.Errorf("the fields have %d characters and may have %d", len(text), maxCronLength)
	}
	if every, ok := strings.CutPrefix(text, everyPrefix); ok {
		return p.parseEvery(strings.TrimSpace(every))
	}
	if strings.Contains(text, "TZ=") {
		return fmt.Errorf("the time zone has a field of its own: timeZone")
	}
	parsed, err := cronParser.Parse(text)
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
	p.isInterval = spec.Hour&hours == hours
	if p.nextWall(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return fmt.Errorf("no such day exists")
	}
	return nil
}

// parseEvery accepts only whole seconds, because idempotency keys have due times without fractions; see formatDue.
func (p *Plan) parseEvery(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("@every needs a duration, such as 90s or 1h30m")
	}
	if d < time.Second || d%time.Second != 0 {
		return fmt.Errorf("@every takes whole seconds, at least one")
	}
	p.every, p.isInterval = int64(d/time.Second), true
	return nil
}

// Next returns the first occurrence after a time; zero if there is none.
func (p *Plan) Next(after time.Time) time.Time {
	if !p.start.IsZero() && after.Before(p.start) {
		after = p.start.Add(-1)
	}
	next := p.nextOccurrence(after)
	if next.IsZero() || next.Year() > lastYear || (!p.end.IsZero() && !next.Before(p.end)) {
		return time.Time{}
	}
	return next.UTC()
}

func (p *Plan) nextOccurrence(after time.Time) time.Time {
	if p.every > 0 {
		passed := after.Unix() - p.anchor.Unix()
		if passed < 0 {
			return p.anchor
		}
		return time.Unix(p.anchor.Unix()+(passed/p.every+1)*p.every, 0).UTC()
	}
	return p.nextLocal(after)
}

// nextLocal returns the first occurrence after a time by the cron fields. It searches from one change of the zone's
// offset to the next, because between two changes local times and instants have the same order.
func (p *Plan) nextLocal(after time.Time) time.Time {
	at := after.In(p.zone) // a time in the span that is searched now; a span has one offset
	for {
		offset, change := offsetAt(at), nextOffsetChange(at)
		wall := p.nextWall(after.UTC().Add(offset))
		if wall.IsZero() {
			return time.Time{}
		}
		found := wall.Add(-offset).In(p.zone)
		switch {
		case !change.IsZero() && !found.Before(change):
			after, at = change.Add(-1), change
		case p.isInterval || !isRepeated(found):
			return found
		default:
			after, at = found, found
		}
	}
}

// nextWall returns the next local time that the cron fields name, written as if it were UTC. One call of the library
// searches five years, but from one 29 February to the next it can be eight years. So nextWall calls it up to three
// times.
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

// isRepeated reports whether a local time occurs for the second time, because clocks were set back.
func isRepeated(at time.Time) bool {
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

// willRepeat reports whether a local time will occur again, because clocks will be set back.
func willRepeat(at time.Time) bool {
	end := nextOffsetChange(at)
	if end.IsZero() {
		return false
	}
	back := offsetAt(at) - offsetAt(end)
	again := at.Add(back)
	until := nextOffsetChange(end)
	return back > 0 && !again.Before(end) && (until.IsZero() || again.Before(until))
}

// nextOffsetChange returns a time after t up to which the zone's offset stays the same; zero = the offset never
// changes. The returned time need not be a change of the offset. Behind the end of the zone's tables ZoneBounds takes
// each year as 365 days. So on the last day of a leap year it returns an end that has passed, and nextOffsetChange
// returns the time an hour later instead.
func nextOffsetChange(t time.Time) time.Time {
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

// countLimit is the largest number of missed occurrences that countMissed counts.
const countLimit = 10_000

// countMissed returns the last occurrence up to now. It also returns the number of occurrences from the one at the time
// "first" to that last one, both included. For cron fields the count stops at countLimit.
func (p *Plan) countMissed(first, now time.Time) (time.Time, int64) {
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
			return p.lastBefore(last, now), count
		}
	}
	return last, count
}

// lastBefore returns the last occurrence up to now, if there are too many occurrences to visit all of them. It searches
// from a time shortly before now, and then from earlier times, until it finds an occurrence.
func (p *Plan) lastBefore(known, now time.Time) time.Time {
	for _, back := range []time.Duration{time.Minute, time.Hour, 48 * time.Hour, 32 * 24 * time.Hour} {
		from := laterOf(known, now.Add(-back))
		if last := p.scanUntil(from, now); last.After(from) {
			return last
		}
	}
	return p.scanUntil(known, now)
}

// scanUntil returns the last occurrence up to now. It visits each occurrence after the time "last".
func (p *Plan) scanUntil(last, now time.Time) time.Time {
	for next := p.Next(last); !next.IsZero() && !next.After(now); next = p.Next(next) {
		last = next
	}
	return last
}
