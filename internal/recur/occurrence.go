package recur

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Grace is the largest delay with which an occurrence still counts as on time. After a longer delay
// the occurrence is missed; see Missed.
const Grace = 10 * time.Second

// clockSkew is the largest difference between the clocks of two processes. /api/health fails if a
// clock is wrong by more than two seconds.
const clockSkew = 4 * time.Second

// maxConflicts is the largest number of times that a change is repeated because another process has
// changed the row.
const maxConflicts = 20

// unreadPatience is the delay after which an occurrence counts as refused if storage does not
// return its message: storage may refuse one blob for good.
const unreadPatience = 10 * time.Minute

// fileAhead is the time between the append of an occurrence's message and the occurrence's due
// time. The append comes first, so its duration does not delay the delivery.
const fileAhead = time.Second

func (s Schedule) leadTime() time.Duration {
	if s.Overlap == Skip {
		// nothing is appended early, because the last message can still become final until the due
		// time
		return 0
	}
	return fileAhead
}

// wakeAt returns the time at which a process handles the next occurrence, or zero if no occurrence
// follows.
func (s Schedule) wakeAt() time.Time {
	if s.NextAt.IsZero() {
		return s.NextAt
	}
	return s.NextAt.Add(-s.leadTime())
}

// processDue handles all occurrences up to the present time, plus the schedule's lead time. It
// appends, skips or refuses each occurrence, or counts it as missed. It returns the resulting
// schedule, and reports whether this process wrote the last change of the schedule's state. Several
// processes can call processDue for the same schedule at the same time.
func (r *Runner) processDue(ctx context.Context, name string) (s Schedule, moved bool, err error) {
	return r.processUntil(ctx, name, dueRange{})
}

// processBeforeChange is processDue for a schedule that is about to be replaced. It also handles
// the occurrences that a process with a fast clock may have appended already.
func (r *Runner) processBeforeChange(ctx context.Context, name string) (Schedule, error) {
	s, _, err := r.processUntil(ctx, name, dueRange{further: clockSkew, isChanging: true})
	return s, err
}

// processBeforePause is processDue for a schedule that is about to be paused: it appends nothing
// ahead of its time and no missed occurrence, but counts all of these as missed. A user who pauses
// a schedule wants none of its late messages, and with missed: all there can be thousands.
func (r *Runner) processBeforePause(ctx context.Context, name string) (Schedule, error) {
	s, _, err := r.processUntil(ctx, name, dueRange{isPausing: true, isChanging: true})
	return s, err
}

// dueRange selects the occurrences that processUntil handles.
type dueRange struct {
	further   time.Duration // added to the present time and the schedule's lead time
	isPausing bool          // see processBeforePause
	// an operator waits: an occurrence whose message cannot be read is refused at once
	isChanging bool
}

func (d dueRange) end(s Schedule, now time.Time) time.Time {
	if d.isPausing {
		return now
	}
	return now.Add(s.leadTime() + d.further)
}

// processUntil is processDue for the occurrences that the parameter due selects.
func (r *Runner) processUntil(ctx context.Context, name string, due dueRange) (s Schedule,
	moved bool, err error) {
	// not read in the loop, so that the loop ends even with an occurrence each second
	now := r.cfg.Now()
	s, err = r.cfg.Store.find(ctx, name)
	until := due.end(s, now)
	for conflicts := 0; err == nil && !s.NextAt.IsZero() && !s.NextAt.After(until); {
		before, creationID := s.State, s.creationID
		if err = r.processNext(ctx, &s, due); err != nil {
			break
		}

		filed := s.Last

		if err = r.cfg.Store.writeState(ctx, &s); err == nil {
			conflicts, moved = 0, true
			continue
		}

		moved = false

		if conflicts++; conflicts > maxConflicts ||
			!(isChanged(err) || storage.Is(err, storage.Ambiguous)) {
			break
		}

		// Another process has written the row, or the answer to this process's write was lost.
		s, err = r.cfg.Store.find(ctx, name)
		if !s.NextAt.Equal(before.NextAt) {
			conflicts = 0
		}

		isSame := s.creationID == creationID // a schedule created anew has another state
		if err == nil && isSame && filed != before.Last && s.reconcile(filed, before) {
			err = ignoreChanged(r.cfg.Store.writeState(ctx, &s))
		}
	}

	return s, moved, err
}

// reconcile repairs the state if this process appended an occurrence while another process counted
// the occurrence as skipped or missed, or paused the schedule. It reports whether it changed the
// state. Without the repair, a schedule with overlap "skip" would not know that the message exists.
// It would append the next occurrence even if that message is not final.
func (s *Schedule) reconcile(filed Filed, before State) bool {
	isNext := !s.NextAt.IsZero() && !s.NextAt.After(before.NextAt)
	if isNext || !s.Last.DueAt.Before(filed.DueAt) {
		// the row still names this occurrence as the next one, or already has the occurrence's
		// message
		return false
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

// ignoreChanged returns nil if err means that another process has changed the row. It is for writes
// that need not succeed.
func ignoreChanged(err error) error {
	if isChanged(err) {
		return nil
	}
	return err
}

// processNext handles the next occurrence, and changes s accordingly. The caller writes the row. If
// selected.isPausing is set, a missed occurrence is only counted.
func (r *Runner) processNext(ctx context.Context, s *Schedule, selected dueRange) error {
	plan, err := s.newPlan()
	if err != nil {
		return err
	}

	now, due := r.cfg.Now(), s.NextAt
	if now.Sub(due) > Grace && selected.isPausing {
		s.CatchUp = false
		s.dropMissed(plan, now)
		return nil
	}

	if now.Sub(due) > Grace && !s.CatchUp && s.Definition.Missed != All {
		checked, err := r.readStorageClock(ctx, now)
		if err != nil {
			return err
		}

		if checked.Sub(due) > Grace {
			r.passMissed(s, plan, checked)
			return nil
		}
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

	switch {
	case s.unread == nil:
		err = r.fileMessage(ctx, s, now)
	case selected.isChanging || now.Sub(due) >= unreadPatience:
		r.refuse(s, s.unread)
	default:
		err = s.unread
	}

	if err == nil {
		s.moveOn(plan, due)
	}

	return err
}

// readStorageClock returns the time by the clock of storage; now is the time by the clock of this
// process. A process with a fast clock must not count an occurrence as missed that another process
// is about to append.
func (r *Runner) readStorageClock(ctx context.Context, now time.Time) (time.Time, error) {
	if r.cfg.Skew == nil {
		return now, nil
	}
	skew, err := r.cfg.Skew(ctx)
	return now.Add(skew), err
}

// passMissed counts the missed occurrences, and sets NextAt to the first occurrence after them. But
// if the schedule's field Missed is One, passMissed sets NextAt to the last missed occurrence. It
// then also sets CatchUp, so that processNext appends this occurrence in spite of the delay.
func (r *Runner) passMissed(s *Schedule, plan *Plan, now time.Time) {
	if s.Definition.Missed == One {
		// An occurrence that is due within the lead time replaces all missed occurrences, because
		// it is appended now.
		last, count := plan.countMissed(s.NextAt, now.Add(s.leadTime()))
		s.State.Missed += count - 1
		s.NextAt, s.CatchUp = last, true
		return
	}

	s.dropMissed(plan, now)
}

// dropMissed counts the occurrences up to now as missed, and sets the next one.
func (s *Schedule) dropMissed(plan *Plan, now time.Time) {
	last, count := plan.countMissed(s.NextAt, now)
	s.State.Missed += count
	s.SettledAt, s.NextAt = last, plan.Next(last)
}

// moveOn records that the occurrence with the given due time was handled, and sets the next
// occurrence.
func (s *State) moveOn(plan *Plan, due time.Time) {
	s.SettledAt, s.CatchUp = due, false
	s.NextAt = plan.Next(due)
	s.assignNumber()
}

// assignNumber gives the next occurrence a new number if the last message has used the present
// number.
func (s *State) assignNumber() {
	if s.NextRun == s.Last.Run {
		s.Runs++
		s.NextRun = s.Runs
	}
}

func (s Schedule) newPlan() (*Plan, error) { return NewPlan(s.Definition, s.Anchor) }

func (r *Runner) isPending(ctx context.Context, message string) (bool, error) {
	id, err := weir.ParseID(message)
	if err != nil {
		// the schedule has no message yet, or the id of its last message is not known
		return false, nil
	}

	st, err := r.cfg.Log.Status(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		return false, nil // retention has removed the message
	}

	return err == nil && !st.Stage.Final(), err
}

// fileMessage builds the next occurrence's message and appends the message to the log. If the
// contract refuses the message, fileMessage counts the occurrence as refused and returns no error.
func (r *Runner) fileMessage(ctx context.Context, s *Schedule, now time.Time) error {
	due := s.NextAt
	m, err := r.buildMessage(ctx, s.Definition, due, s.NextRun)
	switch weir.KindOf(err) {
	case weir.Malformed, weir.TooLarge, weir.Unsupported, weir.Invalid:
		r.refuse(s, err)
		return nil
	}

	if err != nil {
		return err
	}

	if m.DueAt = clock.Later(m.DueAt, due); !m.DueAt.After(now) {
		m.DueAt = time.Time{} // deliver at once
	}

	receipt, err := r.appendMessage(ctx, m, s.idempotencyKey(formatDue(due)))
	if weir.KindOf(err) == weir.Invalid && err != nil {
		// The log has another body under this idempotency key. So the occurrence was appended
		// earlier, with another definition or number.
		receipt, err = lane.Receipt{}, nil
	}

	if err != nil {
		return err
	}

	s.Filed++
	s.Last = Filed{DueAt: due, Run: s.NextRun, MessageID: receipt.Message.Public().String(),
		At: now.UTC()}
	s.Refusal = ""

	return nil
}

// refuse counts the next occurrence as refused.
func (r *Runner) refuse(s *Schedule, reason error) {
	s.Refused++
	s.Refusal = refusalText(reason)
	r.cfg.Logger.Warn("recur: message refused", "err", reason)
}

const maxRefusal = 1000 // bytes

// refusalText returns the message of err with its first problem. It cuts a text of more than
// maxRefusal bytes, and appends "…".
func refusalText(err error) string {
	var e *weir.Error
	if !errors.As(err, &e) {
		return ""
	}

	line := e.Message
	if len(e.Problems) > 0 {
		line += ": " + e.Problems[0].Message
	}

	if len(line) > maxRefusal {
		line = strings.ToValidUTF8(line[:maxRefusal], "") + "…"
	}

	return line
}

func (r *Runner) buildMessage(ctx context.Context, d Definition, due time.Time,
	run int64) (weir.Message, error) {
	t, err := parseTemplate(d.Message)
	if err != nil {
		return weir.Message{}, err
	}
	return r.cfg.Contracts.Accept(ctx, d.ContentType, t.renderRun(due, run))
}

func (r *Runner) appendMessage(ctx context.Context, m weir.Message,
	key string) (lane.Receipt, error) {
	receipt, err := r.cfg.Log.Append(ctx, m, key)
	if err != nil {
		return receipt, err
	}

	id := receipt.Message.ID

	// A duplicate is rung, too: the process that appended the message may have crashed before it
	// rang.
	r.cfg.Waker.Ring(id.Lane)
	if receipt.Duplicate {
		return receipt, nil
	}

	r.cfg.Logger.Debug("recur: filed", "message_id", receipt.Message.Public().String(), "lane",
		id.Lane, "seq", id.Seq, "stage", string(receipt.Stage))

	return receipt, nil
}
