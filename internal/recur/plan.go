package recur

import (
	"errors"
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
//
// Plan gives local times to the cron library as if they were UTC, which skips and repeats no hour.
// Then Plan converts the library's local times into instants. With times in the schedule's zone,
// the library would run a fixed time such as "30 2 * * *" in Berlin twice when clocks are set back.
// Also, the library would not report skipped local times.
type Plan struct {
	spec *cron.SpecSchedule // nil for @every
	// seconds between two runs of @every; 0 = the plan has cron fields
	every      int64
	anchor     time.Time // time from which @every counts
	isInterval bool      // a local time that occurs twice is due twice
	zone       *time.Location
	start, end time.Time
}

// cronParser follows Vixie cron: if day of month and day of week are both restricted, a day needs
// to match only one of these fields.
var cronParser = cron.MustNewParser(
	cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)

const everyPrefix = "@every "

// NewPlan returns the plan of a definition. If the definition has no start, @every counts from the
// parameter "anchor". The error has the kind Invalid and lists all problems.
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

// maxCronLength is the largest length of a cron expression in bytes. A longer expression might not
// fit into a row.
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
	spec, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		if err := checkCron(text); err != nil {
			return err // in words of Weir; the library's are for programmers
		}
		return errors.New("the fields cannot be read")
	}

	spec.Location = time.UTC
	p.spec = spec

	for _, bits := range []uint64{spec.Second, spec.Minute, spec.Hour, spec.Dom, spec.Month,
		spec.Dow} {
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

// parseEvery accepts only whole seconds, because the due times in idempotency keys have no
// fractions; see formatDue.
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

// Next returns the due time of the first occurrence after a time, or zero if no occurrence follows.
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

// nextLocal returns the first occurrence after a time, for cron fields. It searches one span of
// time after the other. Within a span the zone's offset does not change, so a later local time is
// also a later instant.
func (p *Plan) nextLocal(after time.Time) time.Time {
	at := after.In(p.zone) // a time in the span that is searched
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

// nextWall returns the next local time that the cron fields name, as if it were UTC. The library
// searches only five years, but leap days can be eight years apart. So nextWall calls the library
// up to three times.
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

// isRepeated reports whether a wall clock shows this local time for the second time, because clocks
// were set back.
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

// willRepeat reports whether a wall clock will show this local time again, because clocks will be
// set back.
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

// nextOffsetChange returns a time after t. From t until the returned time, the zone's offset stays
// the same. Zero means that the offset never changes. In years after the end of the zone's tables,
// time.ZoneBounds takes each year as 365 days. So on the last day of a leap year ZoneBounds returns
// an end that is not after t. Then nextOffsetChange returns t plus an hour; the offset need not
// change at that time.
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

// countLimit is the largest number of occurrences that countMissed visits.
const countLimit = 10_000

// countMissed returns the last occurrence up to now. It also returns the number of occurrences from
// the parameter "first" to that last one, both included. For cron fields this number is at most
// countLimit.
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

// lastBefore returns the last occurrence up to now, without a visit to all occurrences. It searches
// the last minute, and then ever longer times before now, until it finds an occurrence.
func (p *Plan) lastBefore(known, now time.Time) time.Time {
	for _, back := range []time.Duration{time.Minute, time.Hour, 48 * time.Hour,
		32 * 24 * time.Hour} {
		from := clock.Later(known, now.Add(-back))
		if last := p.scanUntil(from, now); last.After(from) {
			return last
		}
	}

	return p.scanUntil(known, now)
}

// scanUntil visits each occurrence after the parameter "last", and returns the last occurrence up
// to now.
func (p *Plan) scanUntil(last, now time.Time) time.Time {
	for next := p.Next(last); !next.IsZero() && !next.After(now); next = p.Next(next) {
		last = next
	}
	return last
}
