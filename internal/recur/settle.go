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

// Grace is how late an occurrence may be and still count as on time. One that is later
// was missed: nothing ran.
const Grace = 10 * time.Second

// clockSkew is by how much the clocks of two processes may differ: each may be two seconds
// off before health warns.
const clockSkew = 4 * time.Second

// maxLost bounds how often in a row a change is tried anew that others were faster with.
const maxLost = 20

// fileAhead is how long before it is due an occurrence is filed, as a message due at its
// moment: so it goes out at that moment and not when it has been filed. Whether the last
// one is final is known at the moment only, so with overlap: skip nothing is filed ahead.
const fileAhead = time.Second

func (s Schedule) ahead() time.Duration {
	if s.Overlap == Skip {
		return 0
	}
	return fileAhead
}

// lookAt is when the next occurrence is to be filed; zero = there is none.
func (s Schedule) lookAt() time.Time {
	if s.NextAt.IsZero() {
		return s.NextAt
	}
	return s.NextAt.Add(-s.ahead())
}

// settle brings a schedule up to now, and ahead of it by the time given beside its own: what
// is due is filed, skipped or counted as missed, one occurrence after the other. It gives
// back the schedule as it stands then, and says whether it was this process that moved it
// there. It may run in many processes at once.
func (r *Runner) settle(ctx context.Context, name string, further time.Duration) (s Schedule, moved bool, err error) {
	now := r.cfg.Now() // fixed: a schedule of each second must not keep us here
	s, err = r.cfg.Store.Get(ctx, name)
	until := now.Add(s.ahead() + further)
	for lost := 0; err == nil && !s.NextAt.IsZero() && !s.NextAt.After(until); {
		before := s.State
		if err = r.step(ctx, &s); err != nil {
			break
		}
		filed := s.Last
		if err = r.cfg.Store.move(ctx, &s); err == nil {
			lost, moved = 0, true
			continue
		}
		moved = false
		if lost++; lost > maxLost || !(changed(err) || storage.Is(err, storage.Ambiguous)) {
			break
		}
		// Another process was first, or this one was without knowing it.
		s, err = r.cfg.Store.Get(ctx, name)
		if !s.NextAt.Equal(before.NextAt) {
			lost = 0
		}
		if err == nil && filed != before.Last && s.claim(filed, before) {
			err = ignoreChanged(r.cfg.Store.move(ctx, &s))
		}
	}
	return s, moved, err
}

// claim tells the row of a message that was filed here for an occurrence that another
// process has passed over at the same time, by a clock or a status of its own: a later
// occurrence has to know of it.
func (s *Schedule) claim(filed Filed, before State) bool {
	if !s.NextAt.After(before.NextAt) || !s.Last.DueAt.Before(filed.DueAt) {
		return false // the row stands where it stood, or knows
	}
	switch {
	case s.SkippedAt.Equal(filed.DueAt):
		s.Skipped--
	case s.State.Missed > before.Missed:
		s.State.Missed--
	}
	s.Filed++
	s.Last = filed
	s.number()
	return true
}

// ignoreChanged is for what is only worth a try.
func ignoreChanged(err error) error {
	if changed(err) {
		return nil
	}
	return err
}

// step settles the next occurrence of s, up to its row.
func (r *Runner) step(ctx context.Context, s *Schedule) error {
	plan, err := s.plan()
	if err != nil {
		return err
	}
	now, due := r.cfg.Now(), s.NextAt
	if now.Sub(due) > Grace && !s.CatchUp && s.Definition.Missed != All {
		r.missed(s, plan, now)
		return nil
	}
	if s.Overlap == Skip {
		busy, err := r.busy(ctx, s.Last.MessageID)
		if err != nil {
			return err
		}
		if busy {
			s.Skipped++
			s.SkippedAt = due
			s.advance(plan, due)
			return nil
		}
	}
	err = r.file(ctx, s, now)
	if err == nil {
		s.advance(plan, due)
	}
	return err
}

// missed passes over what was due while nothing ran. With One, the last of it is left,
// marked: whoever files it then files it whatever the time is.
func (r *Runner) missed(s *Schedule, plan *Plan, now time.Time) {
	if s.Definition.Missed == One {
		// The one that is filed now anyway, ahead of its time, makes up for the others.
		last, count := plan.latest(s.NextAt, now.Add(s.ahead()))
		s.State.Missed += count - 1
		s.NextAt, s.CatchUp = last, true
		return
	}
	last, count := plan.latest(s.NextAt, now)
	s.State.Missed += count
	s.SettledAt, s.NextAt = last, plan.Next(last)
}

// advance moves on behind an occurrence that is settled.
func (s *State) advance(plan *Plan, due time.Time) {
	s.SettledAt, s.CatchUp = due, false
	s.NextAt = plan.Next(due)
	s.number()
}

// number gives the next occurrence a number of its own, if its has been used.
func (s *State) number() {
	if s.NextRun == s.Last.Run {
		s.Runs++
		s.NextRun = s.Runs
	}
}

func (s Schedule) plan() (*Plan, error) { return NewPlan(s.Definition, s.Anchor) }

// busy says whether a message is on its way still.
func (r *Runner) busy(ctx context.Context, message string) (bool, error) {
	id, err := weir.ParseID(message)
	if err != nil {
		return false, nil // there is none yet
	}
	st, err := r.cfg.Log.Status(ctx, id)
	if weir.KindOf(err) == weir.NotFound {
		return false, nil // removed after its retention
	}
	return err == nil && !st.Stage.Final(), err
}

// file makes the next occurrence's message and appends it.
func (r *Runner) file(ctx context.Context, s *Schedule, now time.Time) error {
	due := s.NextAt
	m, err := r.message(ctx, s.Definition, due, s.NextRun)
	switch weir.KindOf(err) {
	case weir.Malformed, weir.TooLarge, weir.Unsupported, weir.Invalid:
		s.Refused++
		s.Refusal = refusal(err)
		r.cfg.Logger.Warn("recur: message refused", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	if m.DueAt = later(m.DueAt, due); !m.DueAt.After(now) {
		m.DueAt = time.Time{} // at once
	}
	receipt, err := r.append(ctx, m, s.Name+"@"+stamp(due))
	if weir.KindOf(err) == weir.Invalid && err != nil {
		// It was filed before the definition changed, or before a text of another number.
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

// refusal is one line that says what was wrong with a message.
func refusal(err error) string {
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

// message makes a run's message, and takes it through its contract.
func (r *Runner) message(ctx context.Context, d Definition, due time.Time, run int64) (weir.Message, error) {
	t, err := parseText(d.Message)
	if err != nil {
		return weir.Message{}, err
	}
	return r.cfg.Contracts.Accept(ctx, d.ContentType, t.render(due, run))
}

func (r *Runner) append(ctx context.Context, m weir.Message, key string) (lane.Receipt, error) {
	receipt, err := r.cfg.Log.Append(ctx, m, key)
	if err != nil {
		return receipt, err
	}
	id := receipt.Message.ID
	r.cfg.Bell.RingSoon(id.Lane) // a repeat too: whoever filed it may be gone
	if receipt.Duplicate {
		return receipt, nil
	}
	r.cfg.Logger.Debug("recur: filed", "message_id", receipt.Message.Public().String(), "lane", id.Lane, "seq", id.Seq, "stage", string(receipt.Stage))
	return receipt, nil
}
