package recur

import (
	"context"
	"fmt"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Get returns a schedule. If storage does not return the message, the schedule has none, and
// Schedule.Unread returns the reason. Errors: NotFound, Unavailable.
func (r *Runner) Get(ctx context.Context, name string) (Schedule, error) {
	return r.cfg.Store.find(ctx, name)
}

// List returns all schedules, in the order of their names, without their messages.
func (r *Runner) List(ctx context.Context) ([]Schedule, error) { return r.cfg.Store.List(ctx) }

// Put stores a definition under a name, and reports whether the schedule is new. It writes nothing
// if the definition is unchanged. Errors:
//
//   - Invalid, with all problems of the definition
//   - the contract's error, if the contract refuses the message
//   - Stale, if the schedule does not meet cond
//   - Conflict, if the schedule would exceed the Limits
//   - Unavailable
func (r *Runner) Put(ctx context.Context, name string, d Definition, cond Condition) (Schedule,
	bool, error) {
	d = d.withDefaults()
	if err := r.checkDefinition(ctx, d); err != nil {
		return Schedule{}, false, err
	}
	return r.storeDefinition(ctx, name, d, cond)
}

// storeDefinition is Put without the check of the definition.
func (r *Runner) storeDefinition(ctx context.Context, name string, d Definition,
	cond Condition) (Schedule, bool, error) {
	select {
	case r.putLock <- struct{}{}: // so that concurrent Puts of this process cannot exceed the limits
	case <-ctx.Done():
		return Schedule{}, false, errTooBusy()
	}
	defer func() { <-r.putLock }()

	for range maxConflicts {
		s, created, err := r.putOnce(ctx, name, d, cond)
		if isChanged(err) {
			continue
		}

		if err == nil {
			r.resetTimer(name, s.wakeAt(), alwaysNewer, firesFirst)
		}

		return s, created, err
	}

	return Schedule{}, false, errTooBusy()
}

// SetPaused pauses or resumes a schedule. Before SetPaused resumes a schedule, it checks the
// definition as Put does. Errors: NotFound, and the errors of Put.
func (r *Runner) SetPaused(ctx context.Context, name string, isPaused bool) (Schedule, error) {
	for range maxConflicts {
		s, err := r.cfg.Store.find(ctx, name)
		if err != nil || s.Paused == isPaused {
			return s, err
		}

		if s.unread != nil {
			s, err = r.pauseUnread(ctx, s, isPaused)
			if isChanged(err) {
				continue
			}
			return s, err
		}

		d := s.Definition
		if d.Paused = isPaused; !isPaused {
			if err := r.checkDefinition(ctx, d); err != nil {
				return Schedule{}, err
			}
		}

		stored, _, err := r.storeDefinition(ctx, name, d, Condition{Versions: []string{s.Version}})
		if weir.KindOf(err) == weir.Stale {
			continue // another caller has changed the schedule
		}

		return stored, err
	}

	return Schedule{}, errTooBusy()
}

// pauseUnread pauses a schedule whose message storage does not return. The row keeps the name of
// the message's blob. Such a schedule cannot be resumed: its message cannot be checked.
func (r *Runner) pauseUnread(ctx context.Context, s Schedule, isPaused bool) (Schedule, error) {
	if !isPaused {
		return Schedule{}, s.unread
	}

	paused, err := r.processBeforePause(ctx, s.Name)
	if err != nil {
		return Schedule{}, err
	}

	if paused.Version != s.Version || paused.Paused {
		return Schedule{}, &storage.Error{Op: "schedule: pause",
			Kind: storage.Precondition, Index: -1}
	}

	paused.Paused, paused.NextAt, paused.CatchUp = true, time.Time{}, false
	paused.ChangedAt = r.cfg.Now().UTC().Truncate(time.Microsecond)
	paused.Version = Definition{Message: []byte("paused " + s.Version)}.hashVersion()
	if err := r.writeSchedule(ctx, &paused); err != nil {
		return Schedule{}, err
	}

	r.resetTimer(s.Name, time.Time{}, alwaysNewer, firesFirst)

	return paused, nil
}

func errTooBusy() error {
	return &weir.Error{Kind: weir.Unavailable, Op: "schedule",
		Message: "the schedule is being changed all the time; try again", RetryAfter: time.Second}
}

// checkDefinition validates a definition, and checks the message of its next run against the
// contract.
func (r *Runner) checkDefinition(ctx context.Context, d Definition) error {
	if err := d.checkFields(); err != nil {
		return err
	}

	now := r.cfg.Now()
	plan, err := NewPlan(d, now)
	if err != nil {
		return err
	}

	// Only new definitions are held against the grammar, because stored ones must go on.
	if err := checkCron(strings.TrimSpace(d.Cron)); err != nil {
		return newInvalidError("the schedule cannot be read",
			weir.Problem{Path: "cron", Rule: "cron", Message: err.Error()})
	}

	sample := plan.Next(now)
	if sample.IsZero() {
		sample = now
	}

	_, err = r.buildMessage(ctx, d, sample, 1)

	return err
}

func (d Definition) checkFields() error {
	var problems []weir.Problem
	if d.Overlap != Queue && d.Overlap != Skip {
		problems = append(problems,
			weir.Problem{Path: "overlap", Rule: "oneof", Message: "overlap is queue or skip"})
	}

	if d.Missed != One && d.Missed != All && d.Missed != None {
		problems = append(problems,
			weir.Problem{Path: "missed", Rule: "oneof", Message: "missed is one, all or none"})
	}

	for path, t := range map[string]time.Time{"start": d.Start, "end": d.End} {
		if !t.IsZero() && (t.Year() < 1971 || t.Year() > lastYear) {
			problems = append(problems, weir.Problem{Path: path, Rule: "year",
				Message: "the year must be 1971 to 9999"})
		}
	}

	if len(problems) > 0 {
		return newInvalidError("the schedule cannot be read", problems...)
	}

	return nil
}

func (r *Runner) putOnce(ctx context.Context, name string, d Definition, cond Condition) (Schedule,
	bool, error) {
	old, found, err := r.findSchedule(ctx, name)
	if err != nil {
		return Schedule{}, false, err
	}

	if err := cond.checkVersion(old.Version); err != nil {
		return Schedule{}, false, err
	}

	if found && old.Version == d.hashVersion() && old.unread == nil {
		return old, false, nil
	}

	if err := r.checkLimits(ctx, old, d); err != nil {
		return Schedule{}, false, err
	}

	if found {
		// First processDue handles the occurrences of the old definition: those that are due, and
		// those that a process with a fast clock may have appended already. Otherwise the new
		// definition could append an occurrence that the old definition has appended.
		checked := old.Version
		if d.Paused { // a paused definition appends nothing
			old, err = r.processBeforePause(ctx, name)
		} else {
			old, err = r.processBeforeChange(ctx, name)
		}

		if err != nil {
			return Schedule{}, false, err
		}

		if old.Version != checked {
			return Schedule{}, false,
				&storage.Error{Op: "schedule: write", Kind: storage.Precondition, Index: -1}
		}
	}

	next, err := r.nextRevision(ctx, name, old, d)
	if err != nil {
		return Schedule{}, false, err
	}

	if err := r.writeSchedule(ctx, &next); err != nil {
		// If another caller has changed the row (isChanged), "next" was not written, and its
		// message is not needed. After any other error the write can still succeed later, and then
		// the row needs the message.
		if isChanged(err) {
			r.removeOldMessage(ctx, next, old)
		}
		return Schedule{}, false, err
	}

	r.removeOldMessage(ctx, old, next)

	return next, !found, nil
}

func (r *Runner) findSchedule(ctx context.Context, name string) (Schedule, bool, error) {
	s, err := r.cfg.Store.find(ctx, name)
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return Schedule{Name: name}, false, nil
	}
	return s, err == nil, err
}

// drawCreationID returns a random text of 96 bits. It draws from Config.Rand, so that a simulated
// system repeats exactly.
func (r *Runner) drawCreationID() string {
	const half = 1 << 48
	return fmt.Sprintf("%012x%012x", int64(r.cfg.Rand()*half), int64(r.cfg.Rand()*half))
}

// nextRevision returns the schedule that replaces "old", and stores the message of d. If there was
// no schedule of this name, "old" is empty.
func (r *Runner) nextRevision(ctx context.Context, name string, old Schedule,
	d Definition) (Schedule, error) {
	now := r.cfg.Now().UTC().Truncate(time.Microsecond)
	next := Schedule{Name: name, Definition: d, State: old.State, Version: d.hashVersion(),
		CreatedAt: old.CreatedAt, ChangedAt: now, creationID: old.creationID, etag: old.etag}

	if old.etag == "" {
		next.creationID = r.drawCreationID()
		next.CreatedAt, next.NextRun, next.Runs = now, 1, 1
	}

	if old.etag == "" || old.Cron != d.Cron || !old.Start.Equal(d.Start) {
		next.Anchor = now.Truncate(time.Second)
	}

	next.NextAt, next.CatchUp = time.Time{}, false
	if !d.Paused {
		plan, err := next.newPlan()
		if err != nil {
			return Schedule{}, err
		}
		next.NextAt = plan.Next(clock.Later(now, next.SettledAt))
	}

	var err error
	next.columns, err = r.cfg.Store.storeMessage(ctx, name, d.Message)

	return next, err
}

// writeSchedule stores s. If storage's answer is lost, writeSchedule reads the row to see whether
// the write succeeded.
func (r *Runner) writeSchedule(ctx context.Context, s *Schedule) error {
	err := r.cfg.Store.writeRow(ctx, s)
	if !storage.Is(err, storage.Ambiguous) {
		return err
	}

	there, readErr := r.cfg.Store.readRow(ctx, s.Name)
	if readErr == nil && there.Version == s.Version && there.ChangedAt.Equal(s.ChangedAt) {
		*s = there
		return nil
	}

	return err
}

// removeOldMessage removes the stored message of the schedule "old", unless the schedule "kept" has
// the same blob. If the removal fails, removeOldMessage only logs the error.
func (r *Runner) removeOldMessage(ctx context.Context, old, kept Schedule) {
	if err := r.cfg.Store.removeMessage(ctx, old, kept); err != nil {
		r.cfg.Logger.Warn("recur: old message not removed", "err", err)
	}
}

// Delete removes a schedule. Messages that the schedule has appended to the log stay. Errors:
// NotFound, Stale if the schedule does not meet cond, Unavailable. If the context has the id of a
// call that has removed the schedule, Delete returns nil.
func (r *Runner) Delete(ctx context.Context, name string, cond Condition) error {
	removed, isRepeat, err := r.cfg.Store.findDeletion(ctx, name)
	if err != nil {
		return err
	}

	for range maxConflicts {
		s, err := r.cfg.Store.readRow(ctx, name)
		isGone := weir.KindOf(err) == weir.NotFound && err != nil
		if isRepeat && (isGone || err == nil && s.creationID != removed) {
			return nil
		}
		if err != nil {
			return err
		}

		if err := cond.checkVersion(s.Version); err != nil {
			return err
		}

		if err := r.cfg.Store.recordDeletion(ctx, s, r.cfg.Now()); err != nil {
			return err
		}

		removed, isRepeat = s.creationID, weir.CallOf(ctx) != ""
		err = r.cfg.Store.deleteRow(ctx, s)
		if isChanged(err) {
			continue
		}

		if err == nil {
			r.resetTimer(name, time.Time{}, alwaysNewer, firesFirst)
			r.removeOldMessage(ctx, s, Schedule{})
		}

		return err
	}

	return errTooBusy()
}

// Run appends a message of the schedule now, even if the schedule is paused. It returns the receipt
// and the number of the run. The run is not an occurrence: it changes only State.Runs and
// State.Calls. If the context has the id of a call (see weir.WithCall), a repeat of the call
// returns the receipt of the first one. Without an id, Run returns Conflict if the run has no
// message of its own, because an earlier message has the run's idempotency key; the next run has
// another key.
func (r *Runner) Run(ctx context.Context, name string) (lane.Receipt, int64, error) {
	for range maxConflicts {
		s, err := r.cfg.Store.Get(ctx, name)
		if err != nil {
			return lane.Receipt{}, 0, err
		}

		call, err := r.reserveRun(ctx, &s)
		if isChanged(err) {
			continue
		}
		if err != nil {
			return lane.Receipt{}, 0, err
		}

		m, err := r.buildMessage(ctx, s.Definition, call.at, call.run)
		if err != nil {
			return lane.Receipt{}, 0, err
		}

		receipt, err := r.appendMessage(ctx, m, s.idempotencyKey(call.name()))
		if err == nil && receipt.Duplicate && call.id == "" {
			return lane.Receipt{}, 0, errRunTaken()
		}

		return receipt, call.run, err
	}

	return lane.Receipt{}, 0, errTooBusy()
}

func errRunTaken() error {
	return &weir.Error{Kind: weir.Conflict, Op: "schedule: run",
		Message: "an earlier message has the number of this run, so the run has no message of its own; " +
			"run the schedule again"}
}

// Preview returns up to n runs of a schedule, as if the schedule were not paused.
func (r *Runner) Preview(ctx context.Context, name string, n int) (Preview, error) {
	s, err := r.cfg.Store.readRow(ctx, name)
	if err != nil {
		return Preview{}, err
	}

	plan, err := s.newPlan()
	if err != nil {
		return Preview{}, err
	}

	return plan.Preview(clock.Later(r.cfg.Now(), s.SettledAt), n), nil
}

// Try checks a definition as Put does, but not against the Limits. It returns up to n runs of the
// definition, and stores nothing.
func (r *Runner) Try(ctx context.Context, d Definition, n int) (Preview, error) {
	d = d.withDefaults()
	if err := r.checkDefinition(ctx, d); err != nil {
		return Preview{}, err
	}

	now := r.cfg.Now()
	plan, err := NewPlan(d, now)
	if err != nil {
		return Preview{}, err
	}

	return plan.Preview(now, n), nil
}
