package recur

import (
	"context"
	"fmt"
	"time"

	"weir/internal/weir"
)

// Limits bounds all schedules together, so that a caller with the function key of schedules cannot fill the lanes
// without end. A Runner checks the limits when a schedule is stored. Several processes that store new schedules at the
// same moment can exceed the limits by one schedule each. If a limit is lowered, stored schedules still run.
type Limits struct {
	Count int     // schedules; 0 = unlimited
	Rate  float64 // occurrences per second of all schedules that are not paused, each at its busiestRate; 0 = unlimited
}

// Load is the use that schedules make of the Limits.
type Load struct {
	Count int     // schedules
	Rate  float64 // occurrences per second, see Limits.Rate
}

// busiestRate looks at busiestRuns distances between consecutive runs, and takes the shortest of them.
const busiestRuns = 16

// busiestRate returns the occurrences per second of a plan in its busiest time. It looks for the shortest distance
// between two of the next runs, and assumes this distance between all runs. If fewer than two runs follow, it returns
// 0.
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

// busiestRate returns the rate of a definition. The rate is 0 if the definition is paused, has ended, or cannot be
// read.
func (d Definition) busiestRate(now time.Time) float64 {
	if d.Paused || (!d.End.IsZero() && !now.Before(d.End)) {
		return 0
	}
	plan, err := NewPlan(d, now)
	if err != nil {
		return 0 // for example, a later version of Weir has stored the definition
	}
	return plan.busiestRate(now)
}

// ReadLoad returns the use that all stored schedules make of the limits.
func (s *Store) ReadLoad(ctx context.Context) (Load, error) {
	return s.readLoadExcept(ctx, "")
}

// readLoadExcept returns the use of all schedules except one.
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

// checkLimits returns a Conflict if the limits are exceeded when definition d replaces the schedule "old". If "old" is
// empty, the schedule is new. If it is not empty, and the rate of d is at most the rate of "old", d is never refused.
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
