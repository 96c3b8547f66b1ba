package recur

import (
	"context"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Get reads a schedule with its message; NotFound when there is none of this name.
func (r *Runner) Get(ctx context.Context, name string) (Schedule, error) {
	return r.cfg.Store.Get(ctx, name)
}

// List reads all schedules, in the order of their names, without their messages.
func (r *Runner) List(ctx context.Context) ([]Schedule, error) { return r.cfg.Store.List(ctx) }

// Put stores a definition under a name, and says whether it is a new schedule. The same
// definition again changes nothing. Errors: Invalid with every problem, what the contract
// says of the message, Precondition when cond does not hold.
func (r *Runner) Put(ctx context.Context, name string, d Definition, cond Condition) (Schedule, bool, error) {
	d = d.withDefaults()
	if err := r.check(ctx, d); err != nil {
		return Schedule{}, false, err
	}
	for range maxLost {
		s, created, err := r.put(ctx, name, d, cond)
		if changed(err) {
			continue
		}
		if err == nil {
			r.set(name, s.lookAt(), newest, leads)
		}
		return s, created, err
	}
	return Schedule{}, false, tooBusy()
}

func tooBusy() error {
	return &weir.Error{Kind: weir.Unavailable, Op: "schedule", Message: "the schedule is being changed all the time; try again", RetryAfter: time.Second}
}

// check finds what is wrong with a definition, and takes its message through its contract
// as the next run would.
func (r *Runner) check(ctx context.Context, d Definition) error {
	if err := d.checkWords(); err != nil {
		return err
	}
	now := r.cfg.Now()
	plan, err := NewPlan(d, now)
	if err != nil {
		return err
	}
	sample := plan.Next(now)
	if sample.IsZero() {
		sample = now
	}
	_, err = r.message(ctx, d, sample, 1)
	return err
}

func (d Definition) checkWords() error {
	var problems []weir.Problem
	if d.Overlap != Queue && d.Overlap != Skip {
		problems = append(problems, weir.Problem{Path: "overlap", Rule: "oneof", Message: "overlap is queue or skip"})
	}
	if d.Missed != One && d.Missed != All && d.Missed != None {
		problems = append(problems, weir.Problem{Path: "missed", Rule: "oneof", Message: "missed is one, all or none"})
	}
	for path, t := range map[string]time.Time{"start": d.Start, "end": d.End} {
		if !t.IsZero() && (t.Year() < 1971 || t.Year() > lastYear) {
			problems = append(problems, weir.Problem{Path: path, Rule: "year", Message: "the year must be 1971 to 9999"})
		}
	}
	if len(problems) > 0 {
		return invalid("the schedule cannot be read", problems...)
	}
	return nil
}

func (r *Runner) put(ctx context.Context, name string, d Definition, cond Condition) (Schedule, bool, error) {
	old, found, err := r.find(ctx, name)
	if err != nil {
		return Schedule{}, false, err
	}
	if err := cond.check(old.Version); err != nil {
		return Schedule{}, false, err
	}
	if found && old.Version == d.version() {
		return old, false, nil
	}
	if found {
		// What is due is the old definition's, and so is what a process with another clock
		// may just have filed.
		ahead := clockSkew
		if d.Paused {
			ahead = 0
		}
		checked := old.Version
		if old, _, err = r.settle(ctx, name, ahead); err != nil {
			return Schedule{}, false, err
		}
		if old.Version != checked {
			return Schedule{}, false, &storage.Error{Op: "schedule: write", Kind: storage.Precondition, Index: -1}
		}
	}
	next, err := r.succeed(ctx, name, old, d)
	if err != nil {
		return Schedule{}, false, err
	}
	if err := r.write(ctx, &next); err != nil {
		if changed(err) { // for certain; otherwise it may still arrive
			r.drop(ctx, next, old)
		}
		return Schedule{}, false, err
	}
	r.drop(ctx, old, next)
	return next, !found, nil
}

func (r *Runner) find(ctx context.Context, name string) (Schedule, bool, error) {
	s, err := r.cfg.Store.Get(ctx, name)
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return Schedule{Name: name}, false, nil
	}
	return s, err == nil, err
}

// succeed makes the schedule that takes the place of old, which may be none.
func (r *Runner) succeed(ctx context.Context, name string, old Schedule, d Definition) (Schedule, error) {
	now := r.cfg.Now().UTC().Truncate(time.Microsecond)
	next := Schedule{Name: name, Definition: d, State: old.State, Version: d.version(), CreatedAt: old.CreatedAt, ChangedAt: now, etag: old.etag}
	if old.etag == "" {
		next.CreatedAt, next.NextRun, next.Runs = now, 1, 1
	}
	if old.etag == "" || old.Cron != d.Cron || !old.Start.Equal(d.Start) {
		next.Anchor = now.Truncate(time.Second)
	}
	next.NextAt, next.CatchUp = time.Time{}, false
	if !d.Paused {
		plan, err := next.plan()
		if err != nil {
			return Schedule{}, err
		}
		next.NextAt = plan.Next(later(now, next.SettledAt))
	}
	var err error
	next.columns, err = r.cfg.Store.storeText(ctx, name, d.Message)
	return next, err
}

// write stores s. An answer that is lost is looked up.
func (r *Runner) write(ctx context.Context, s *Schedule) error {
	err := r.cfg.Store.write(ctx, s)
	if !storage.Is(err, storage.Ambiguous) {
		return err
	}
	there, readErr := r.cfg.Store.get(ctx, s.Name)
	if readErr == nil && there.Version == s.Version && there.ChangedAt.Equal(s.ChangedAt) {
		*s = there
		return nil
	}
	return err
}

// drop removes the text of a definition that is no more.
func (r *Runner) drop(ctx context.Context, old, kept Schedule) {
	if err := r.cfg.Store.dropText(ctx, old, kept); err != nil {
		r.cfg.Logger.Warn("recur: old message not removed", "err", err)
	}
}

// Delete removes a schedule. What it has filed stays. Errors: NotFound, Precondition.
func (r *Runner) Delete(ctx context.Context, name string, cond Condition) error {
	for range maxLost {
		s, err := r.cfg.Store.get(ctx, name)
		if err != nil {
			return err
		}
		if err := cond.check(s.Version); err != nil {
			return err
		}
		err = r.cfg.Store.remove(ctx, s)
		if changed(err) {
			continue
		}
		if err == nil {
			r.set(name, time.Time{}, newest, leads)
			r.drop(ctx, s, Schedule{})
		}
		return err
	}
	return tooBusy()
}

// Run files a message of the schedule now, paused or not. The next occurrence stays where
// it is; what was filed so is none of the schedule's occurrences.
func (r *Runner) Run(ctx context.Context, name string) (lane.Receipt, int64, error) {
	for range maxLost {
		s, err := r.cfg.Store.Get(ctx, name)
		if err != nil {
			return lane.Receipt{}, 0, err
		}
		s.Runs++ // a number of its own, before anything is filed under it
		run := s.Runs
		err = r.cfg.Store.move(ctx, &s)
		if changed(err) {
			continue
		}
		if err != nil {
			return lane.Receipt{}, 0, err
		}
		m, err := r.message(ctx, s.Definition, r.cfg.Now(), run)
		if err != nil {
			return lane.Receipt{}, 0, err
		}
		receipt, err := r.append(ctx, m, fmt.Sprintf("%s@run-%d", name, run))
		return receipt, run, err
	}
	return lane.Receipt{}, 0, tooBusy()
}

// Preview gives the next n runs of a schedule, as if it were not paused.
func (r *Runner) Preview(ctx context.Context, name string, n int) (Preview, error) {
	s, err := r.cfg.Store.get(ctx, name)
	if err != nil {
		return Preview{}, err
	}
	plan, err := s.plan()
	if err != nil {
		return Preview{}, err
	}
	return plan.Preview(later(r.cfg.Now(), s.SettledAt), n), nil
}

// Try checks a definition as Put does, and gives its next n runs; nothing is stored.
func (r *Runner) Try(ctx context.Context, d Definition, n int) (Preview, error) {
	d = d.withDefaults()
	if err := r.check(ctx, d); err != nil {
		return Preview{}, err
	}
	now := r.cfg.Now()
	plan, err := NewPlan(d, now)
	if err != nil {
		return Preview{}, err
	}
	return plan.Preview(now, n), nil
}
