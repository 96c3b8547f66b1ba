package recur

import (
	"time"

	"weir/internal/clock"
)

// MaxPreview is the largest number of runs that a caller of the API can request.
const MaxPreview = 200

// Doubled names one of the two instants at which a local time occurs.
type Doubled string

// The two instants of a local time that occurs twice, because clocks are set back.
const (
	First  Doubled = "first"
	Second Doubled = "second"
)

// Run is a future occurrence.
type Run struct {
	DueAt   time.Time // UTC
	Local   time.Time // DueAt in the schedule's zone
	Doubled Doubled   // empty if the local time occurs once
}

// Change is a local time that the cron fields name, and that is skipped or repeated when clocks
// change.
type Change struct {
	Local time.Time // as a wall clock shows it, but with UTC as its zone
	At    time.Time // when the clocks change
	// number of runs at the local time: 0 if it is skipped, 1 or 2 if it is repeated
	Runs int
}

// Preview lists the next runs, and the skipped and repeated local times up to the last of these
// runs.
type Preview struct {
	Runs    []Run
	Skipped []Change
	Doubled []Change
}

// Preview returns up to n runs after a time.
func (p *Plan) Preview(after time.Time, n int) Preview {
	var out Preview
	last := after
	for len(out.Runs) < n {
		next := p.Next(last)
		if next.IsZero() {
			break
		}

		run := Run{DueAt: next, Local: next.In(p.zone)}
		switch {
		case isRepeated(run.Local):
			run.Doubled = Second
		case willRepeat(run.Local):
			run.Doubled = First
			out.Doubled = append(out.Doubled, p.newDoubled(run.Local))
		}

		out.Runs = append(out.Runs, run)
		last = next
	}

	if len(out.Runs) > 0 && p.every == 0 {
		out.Skipped = p.findSkipped(after, last, n)
	}

	return out
}

func (p *Plan) newDoubled(local time.Time) Change {
	end := nextOffsetChange(local)
	c := Change{Local: wallTime(local), At: end.UTC(), Runs: 1}
	if p.isInterval {
		c.Runs = 2
	}
	return c
}

// findSkipped looks at the clock changes between two instants. It returns up to n local times that
// the cron fields name and that these changes skip.
func (p *Plan) findSkipped(from, to time.Time, n int) []Change {
	var out []Change
	if !p.start.IsZero() {
		from = clock.Later(from, p.start)
	}

	for at := from.In(p.zone); ; {
		change := nextOffsetChange(at)
		if change.IsZero() || change.After(to) {
			return out
		}

		first, end := change.UTC().Add(offsetAt(change.Add(-1))), change.UTC().Add(offsetAt(change))
		for wall := p.nextWall(first.Add(-1)); !wall.IsZero() &&
			wall.Before(end); wall = p.nextWall(wall) {
			if len(out) == n {
				return out
			}
			out = append(out, Change{Local: wall, At: change.UTC()})
		}

		at = change
	}
}

// wallTime returns a time in UTC that has the date and the clock reading of the time "local".
func wallTime(local time.Time) time.Time { return local.UTC().Add(offsetAt(local)) }
