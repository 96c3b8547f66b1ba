package recur

import (
	"context"
	"fmt"
	"time"

	"weir/internal/weir"
)

// Limits bounds the number and the rate of all schedules together, so that a user of the API cannot
// fill the lanes without end. A Runner checks the limits when it stores a schedule. Schedules that
// are already stored still run after a limit was lowered. Several processes that store new
// schedules at the same moment can exceed the limits by one schedule each.
type Limits struct {
	Count int // schedules; 0 = unlimited
	// occurrences per second: the sum of busiestRate over all schedules; 0 = unlimited
	Rate float64
}

// Load is the part of the Limits that schedules use.
type Load struct {
	Count int     // schedules
	Rate  float64 // occurrences per second, see Limits.Rate
}

// busiestRuns is the number of distances between consecutive runs that busiestRate compares.
const busiestRuns = 16

// busiestRate returns the occurrences per second of a plan in its busiest time. It takes the
// shortest distance between two of the next runs as the distance between all runs. If fewer than
// two runs follow, it returns 0.
func (p *Plan) busiestRate(now time.Time) float64 {
	if p.every > 0 {
		return 1 / float64(p.every)
	}

	shortest := time.Duration(0)
	last := p.Next(now)
	for range busiestRuns {
		next := p.Next(last)
		if last.IsZero() || next.IsZero() {
			break
		}

		if d := next.Sub(last); shortest == 0 || d < shortest {
			shortest = d
		}

		last = next
	}

	if shortest == 0 {
		return 0
	}

	return 1 / shortest.Seconds()
}

// busiestRate returns 0 if the definition is paused, has ended, or cannot be parsed.
func (d Definition) busiestRate(now time.Time) float64 {
	if d.Paused || (!d.End.IsZero() && !now.Before(d.End)) {
		return 0
	}

	plan, err := NewPlan(d, now)
	if err != nil {
		return 0 // for example, a definition that a later version of Weir has stored
	}

	return plan.busiestRate(now)
}

// ReadLoad returns the load of all stored schedules.
func (s *Store) ReadLoad(ctx context.Context) (Load, error) {
	return s.readLoadExcept(ctx, "")
}

func (s *Store) readLoadExcept(ctx context.Context, name string) (Load, error) {
	all, err := s.List(ctx)
	var load Load
	now := s.Now()
	for _, schedule := range all {
		if schedule.Name != name {
			load.Count++
			load.Rate += schedule.busiestRate(now)
		}
	}

	return load, err
}

// checkLimits returns a Conflict if the schedules would exceed the limits after definition d has
// replaced the schedule "old". If "old" has no ETag, d is the definition of a new schedule. A
// change of a stored schedule is refused only if the change raises the schedule's rate.
func (r *Runner) checkLimits(ctx context.Context, old Schedule, d Definition) error {
	now := r.cfg.Now()
	isNew, rate, before := old.etag == "", d.busiestRate(now), 0.0
	if !isNew {
		before = old.busiestRate(now)
	}

	if (r.cfg.Limits.Count == 0 || !isNew) && (r.cfg.Limits.Rate == 0 || rate <= before) {
		return nil
	}

	others, err := r.cfg.Store.readLoadExcept(ctx, old.Name)
	if err != nil {
		return err
	}

	if limit := r.cfg.Limits.Count; isNew && limit > 0 && others.Count >= limit {
		return errLimit(fmt.Sprintf("there are %d schedules, and no more are allowed: delete some, "+
			"or raise schedules.max in weir.yaml", others.Count))
	}

	if limit := r.cfg.Limits.Rate; limit > 0 && rate > before && others.Rate+rate > limit {
		return errLimit(fmt.Sprintf("the schedules would file up to %.3g messages a second, and %.3g are allowed: "+
			"let it run less often, or raise schedules.rate in weir.yaml", others.Rate+rate, limit))
	}

	return nil
}

func errLimit(message string) error {
	return &weir.Error{Kind: weir.Conflict, Op: "schedule", Message: message}
}
