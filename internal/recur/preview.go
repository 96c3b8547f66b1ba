package recur

import "time"

// MaxPreview is how many runs a preview shows at most.
const MaxPreview = 200

// Doubled says which of two equal local times a run has.
type Doubled string

// A local time that comes twice, when clocks are set back, comes first and second.
const (
	First  Doubled = "first"
	Second Doubled = "second"
)

// Run is an occurrence as it will be.
type Run struct {
	DueAt   time.Time // UTC
	Local   time.Time // the same in the schedule's zone
	Doubled Doubled   // empty where the local time comes once
}

// Change is a local time that the fields name and that a change of clocks leaves out or
// repeats.
type Change struct {
	Local time.Time // as the clock on the wall would show it, written in UTC
	At    time.Time // when the clocks change
	Runs  int       // how often it runs: 0 where skipped, 1 or 2 where doubled
}

// Preview tells the next runs.
type Preview struct {
	Runs    []Run
	Skipped []Change
	Doubled []Change
}

// Preview gives the next n runs after the moment given, and the changes of clocks that
// touch them.
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
		case repeats(run.Local):
			run.Doubled = Second
		case willRepeat(run.Local):
			run.Doubled = First
			out.Doubled = append(out.Doubled, p.doubled(run.Local))
		}
		out.Runs = append(out.Runs, run)
		last = next
	}
	if len(out.Runs) > 0 && p.every == 0 {
		out.Skipped = p.skipped(after, last, n)
	}
	return out
}

func (p *Plan) doubled(local time.Time) Change {
	end := stretchEnd(local)
	c := Change{Local: wallOf(local), At: end.UTC(), Runs: 1}
	if p.everyHour {
		c.Runs = 2
	}
	return c
}

// skipped lists up to n local times that the fields name and that do not exist, between
// two moments.
func (p *Plan) skipped(from, to time.Time, n int) []Change {
	var out []Change
	if !p.start.IsZero() {
		from = later(from, p.start)
	}
	for at := from.In(p.zone); ; {
		change := stretchEnd(at)
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

// wallOf writes a moment's local time as if it were UTC.
func wallOf(local time.Time) time.Time { return local.UTC().Add(offsetAt(local)) }
