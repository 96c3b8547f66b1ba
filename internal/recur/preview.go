package recur

import "time"

// MaxPreview is the largest number of runs of a preview.
const MaxPreview = 200

// Doubled distinguishes the two runs at a local time that occurs twice.
type Doubled string

// The two runs at a local time that occurs twice because clocks are set back.
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

// Change is a local time that the cron fields name, and that a change of clocks skips or repeats.
type Change struct {
	Local time.Time // as a wall clock would show it, written as if it were UTC
	At    time.Time // when the clocks change
	Runs  int       // number of runs at the local time: 0 if it is skipped, 1 or 2 if it is repeated
}

// Preview lists the next runs, and the changes of clocks that affect them.
type Preview struct {
	Runs    []Run
	Skipped []Change
	Doubled []Change
}

// Preview returns the next n runs after a time.
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

// findSkipped returns up to n local times between two instants that the cron fields name, and that a change of clocks
// skips.
func (p *Plan) findSkipped(from, to time.Time, n int) []Change {
	var out []Change
	if !p.start.IsZero() {
		from = laterOf(from, p.start)
	}
	for at := from.In(p.zone); ; {
		change := nextOffsetChange(at)
		if change.IsZero() || change.After(to) {
			return out
		}
		first, end := change.UTC().Add(offsetAt(change.Add(-1))), change.UTC().Add(offsetAt(change))
		for wall := p.nextWall(first.Add(-1)); !wall.IsZero() && wall.Before(end); wall = p.nextWall(wall) {
			if len(out) == n {
				return out
			}
			out = append(out, Change{Local: wall, At: change.UTC()})
		}
		at = change
	}
}

// wallTime returns a local time written as if it were UTC.
func wallTime(local time.Time) time.Time { return local.UTC().Add(offsetAt(local)) }
