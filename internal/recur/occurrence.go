package recur

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Grace is the largest delay with which an occurrence is still processed as if it were on time. An occurrence with a
// larger delay was missed, because no process ran.
const Grace = 10 * time.Second

// clockSkew is the largest difference between the clocks of two processes: each clock may be wrong by two seconds
// before /api/health fails.
const clockSkew = 4 * time.Second

// maxConflicts bounds the number of times that a change is tried again because another writer has changed the row.
const maxConflicts = 20

// fileAhead is the duration by which an occurrence is filed before its due time; its message has that due time. So the
// time that filing takes does not delay the delivery. With "overlap: skip" an occurrence is not filed ahead, because
// only at its due time it is known whether the last message is final.
const fileAhead = time.Second

func (s Schedule) leadTime() time.Duration {
	if s.Overlap == Skip {
		return 0
	}
	return fileAhead
}

// wakeAt returns the time at which the next occurrence must be filed. The time is zero if no occurrence follows.
func (s Schedule) wakeAt() time.Time {
	if s.NextAt.IsZero() {
		return s.NextAt
	}
	return s.NextAt.Add(-s.leadTime())
}

// processDue processes each occurrence that is due before a limit, one after the other: it files or skips the
// occurrence, or counts it as missed. The limit is the present time, plus the schedule's lead time, plus the parameter
// "further". processDue returns the resulting schedule, and reports whether this process wrote the last change of its
// state. Several processes may run processDue for the same schedule at the same time.
func (r *Runner) processDue(ctx context.Context, name string, further time.Duration) (s Schedule, moved bool,
	err error) {
	now := r.cfg.Now() // read once, so that a schedule with an occurrence each second cannot keep the loop running
	s, err = r.cfg.Store.Get(ctx, name)
	until := now.Add(s.leadTime() + further)
	for conflicts := 0; err == nil && !s.NextAt.IsZero() && !s.NextAt.After(until); {
		before := s.State
		if err = r.processNext(ctx, &s); err != nil {
			break
		}
		filed := s.Last
		if err = r.cfg.Store.writeState(ctx, &s); err == nil {
			conflicts, moved = 0, true
			continue
		}
		moved = false
		if conflicts++; conflicts > maxConflicts || !(isChanged(err) || storage.Is(err, storage.Ambiguous)) {
			break
		}
		// Another process has moved the schedule, or the answer to this process's write was lost.
		s, err = r.cfg.Store.Get(ctx, name)
		if !s.NextAt.Equal(before.NextAt) {
			conflicts = 0
		}
		if err == nil && filed != before.Last && s.reconcile(filed, before) {
			err = ignoreChanged(r.cfg.Store.writeState(ctx, &s))
		}
	}
	return s, moved, err
}

// reconcile repairs the state after a race: this process filed the occurrence while another process counted it as
// skipped or missed. It reports whether the state changed. Without the repair, a schedule with "overlap: skip" would
// not find the message when the next occurrence is due.
func (s *Schedule) reconcile(filed Filed, before State) bool {
	if !s.NextAt.After(before.NextAt) || !s.Last.DueAt.Before(filed.DueAt) {
		return false // the row has not moved, or has the message
	}
	switch {
	case s.SkippedAt.Equal(filed.DueAt):
		s.Skipped--
	case s.State.Missed > before.Missed:
		s.State.Missed--
	}
	s.Filed++
	s.Last = filed
	s.assignNumber()
	return true
}

// ignoreChanged drops the error of a write that failed because another process changed the row. It is for writes that
// need not succeed.
func ignoreChanged(err error) error {
	if isChanged(err) {
		return nil
	}
	return err
}

// processNext processes the next occurrence of s, except for writing its row.
func (r *Runner) processNext(ctx context.Context, s *Schedule) error {
	plan, err := s.newPlan()
	if err != nil {
		return err
	}
	now, due := r.cfg.Now(), s.NextAt
	if now.Sub(due) > Grace && !s.CatchUp && s.Definition.Missed != All {
		r.passMissed(s, plan, now)
		return nil
	}
	if s.Overlap == Skip {
		busy, err := r.isPending(ctx, s.Last.MessageID)
		if err != nil {
			return err
		}
		if busy {
			s.Skipped++
			s.SkippedAt = due
			s.moveOn(plan, due)
			return nil
		}
	}
	err = r.fileMessage(ctx, s, now)
	if err == nil {
		s.moveOn(plan, due)
	}
	return err
}

// passMissed counts the occurrences that were due while no process ran, and moves behind them. If the schedule's field
// Missed is One, passMissed stops at the last of them and sets CatchUp, so that this occurrence is filed however late
// it is.
func (r *Runner) passMissed(s *Schedule, plan *Plan, now time.Time) {
	if s.Definition.Missed == One {
		// The last occurrence may be one that is due within the lead time. It is filed now, and replaces the others.
		last, count := plan.countMissed(s.NextAt, now.Add(s.leadTime()))
		s.State.Missed += count - 1
		s.NextAt, s.CatchUp = last, true
		return
	}
	last, count := plan.countMissed(s.NextAt, now)
	s.State.Missed += count
	s.SettledAt, s.NextAt = last, plan.Next(last)
}

// moveOn moves to the next occurrence, after the occurrence with the given due time was processed.
func (s *State) moveOn(plan *Plan, due time.Time) {
	s.SettledAt, s.CatchUp = due, false
	s.NextAt = plan.Next(due)
	s.assignNumber()
}

// assignNumber gives the next occurrence a new number, if the last message has used the number already.
func (s *State) assignNumber() {
	if s.NextRun == s.Last.Run {
		s.Runs++
		s.NextRun = s.Runs
	}
}

func (s Schedule) newPlan() (*Plan, error) { return NewPlan(s.Definition, s.Anchor) }

// isPending reports whether a message is not final yet.
func (r *Runner) isPending(ctx context.Context, message string) (bool, error) {
	id, err := weir.ParseID(message)
	if err != nil {
		return false, nil // no message was filed yet
	}
	st, err := r.cfg.Log.Status(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		return false, nil // removed after its retention
	}
	return err == nil && !st.Stage.Final(), err
}

// fileMessage builds the next occurrence's message and appends it. If the message breaks a rule of its contract,
// fileMessage counts the occurrence as refused and returns no error.
func (r *Runner) fileMessage(ctx context.Context, s *Schedule, now time.Time) error {
	due := s.NextAt
	m, err := r.buildMessage(ctx, s.Definition, due, s.NextRun)
	switch weir.KindOf(err) {
	case weir.Malformed, weir.TooLarge, weir.Unsupported, weir.Invalid:
		s.Refused++
		s.Refusal = refusalText(err)
		r.cfg.Logger.Warn("recur: message refused", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	if m.DueAt = laterOf(m.DueAt, due); !m.DueAt.After(now) {
		m.DueAt = time.Time{} // deliver at once
	}
	receipt, err := r.appendMessage(ctx, m, s.Name+"@"+formatDue(due))
	if weir.KindOf(err) == weir.Invalid && err != nil {
		// The occurrence was filed already, with another definition or with another number in its text.
		receipt, err = lane.Receipt{}, nil
	}
	if err != nil {
		return err
	}
	s.Filed++
	s.Last = Filed{DueAt: due, Run: s.NextRun, MessageID: receipt.Message.Public().String(), At: now.UTC()}
	s.Refusal = ""
	return nil
}

const maxRefusal = 1000 // bytes

// refusalText returns a line with the first problem of a refused message.
func refusalText(err error) string {
	var e *weir.Error
	if !errors.As(err, &e) {
		return ""
	}
	line := e.Message
	if len(e.Problems) > 0 {
		line += ": " + e.Problems[0].Message
	}
	return strings.ToValidUTF8(line[:min(len(line), maxRefusal)], "")
}

// buildMessage renders a run's body, and turns it into a message by its contract.
func (r *Runner) buildMessage(ctx context.Context, d Definition, due time.Time, run int64) (weir.Message, error) {
	t, err := parseTemplate(d.Message)
	if err != nil {
		return weir.Message{}, err
	}
	return r.cfg.Contracts.Accept(ctx, d.ContentType, t.renderRun(due, run))
}

func (r *Runner) appendMessage(ctx context.Context, m weir.Message, key string) (lane.Receipt, error) {
	receipt, err := r.cfg.Log.Append(ctx, m, key)
	if err != nil {
		return receipt, err
	}
	id := receipt.Message.ID
	// A duplicate gets a ticket, too, because the process that filed the message may have died before it sent a ticket.
	r.cfg.Tickets.EnqueueAsync(id.Lane)
	if receipt.Duplicate {
		return receipt, nil
	}
	r.cfg.Logger.Debug("recur: filed", "message_id", receipt.Message.Public().String(), "lane", id.Lane, "seq",
		id.Seq, "stage", string(receipt.Stage))
	return receipt, nil
}
