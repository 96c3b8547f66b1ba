package drain

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/weir"
)

// attempt sends one message and hands what came of it to the committer.
func (r *run) attempt(ctx context.Context, c *candidate) error {
	if err := r.committer.waitBelow(ctx, maxUncommitted); err != nil {
		return err
	}
	if err := r.announce(ctx, c.entry.Seq()); err != nil {
		return err
	}
	r.preloadNext(ctx, c)
	r.taking(c.entry)
	result, err := r.send(ctx, c)
	if err != nil {
		return err
	}
	if c.block != nil {
		delete(r.deferred, c.block.ID)
	}
	verdicts := r.gate.verdicts
	outcome := r.gate.judge(c.entry, result, r.Now())
	if r.gate.verdicts > verdicts {
		r.bringForward()
	}
	if outcome == weir.OutcomeUnavailable {
		r.pauseProbing()
	}
	number := c.entry.AttemptCount + 1
	r.Observer.Attempted(r.lane, &c.entry.Message, result, outcome)
	change, err := r.conclude(c, result, outcome)
	r.logAttempt(ctx, c.entry, number, result, outcome)
	if err != nil {
		return err
	}
	if c.entry.Stage.Final() {
		c.entry.Message.Body = nil // nobody needs it any more, and the commit may take a while
	}
	r.committer.add(change, outcome != weir.OutcomeDelivered || r.careful > 0)
	if r.careful > 0 {
		r.careful--
		return r.committer.waitBelow(ctx, 1)
	}
	return nil
}

// logAttempt logs an attempt: at the default level only the one that made the message final,
// because on Azure log lines cost more than storage does.
func (r *run) logAttempt(ctx context.Context, e *lane.Entry, number int, result weir.Result, outcome weir.Outcome) {
	level := slog.LevelDebug
	if e.Stage.Final() {
		level = slog.LevelInfo
	}
	r.log.LogAttrs(ctx, level, "drain: attempt", slog.String("message_id", e.Message.Public().String()), slog.Int64("seq", e.Seq()), slog.Int64("fence", r.fence),
		slog.Int("attempt", number), slog.String("outcome", string(outcome)), slog.String("stage", string(e.Stage)), slog.Int("status", result.Status),
		slog.Duration("duration", result.Duration), slog.String("err", quiet(result)), slog.String("trace_id", e.Message.TraceID()))
}

// quiet is the reason of a failure, for the log.
func quiet(r weir.Result) string {
	if r.Outcome == weir.OutcomeDelivered {
		return ""
	}
	return r.Reason
}

// announce writes, in careful running, which message is about to be sent: if the process
// dies of it, the next holder knows.
func (r *run) announce(ctx context.Context, seq int64) error {
	if r.careful == 0 || seq == r.condemned {
		return nil
	}
	same := r.trying == seq
	r.trying = seq
	ch := &lane.Change{}
	ch.UpdateTail(func(t *lane.Tail) {
		t.InFlightSeq = seq
		if !same {
			t.InFlightCrashes = 0
		}
	})
	r.committer.add(ch, true)
	return r.committer.waitBelow(ctx, 1)
}

// send makes the attempt, unless too many processes in a row ended during one.
func (r *run) send(ctx context.Context, c *candidate) (weir.Result, error) {
	e := c.entry
	if e.Seq() == r.condemned {
		return weir.Result{Outcome: weir.OutcomeRejected, Reason: fmt.Sprintf("processes ended %d times in a row while this message was being delivered, and no attempt came to its end; it need not be the cause", carefulAfter), StartedAt: r.Now()}, nil
	}
	err := r.loadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return weir.Result{Outcome: weir.OutcomeRejected, Reason: "the message's body is gone from storage", StartedAt: r.Now()}, nil
	}
	if err != nil {
		return weir.Result{}, err
	}
	if c.last, err = r.lastOf(ctx, e); err != nil {
		return weir.Result{}, err
	}
	if err := r.enter(ctx); err != nil {
		return weir.Result{}, err
	}
	defer r.leave()
	if may, err := r.mayGo(ctx, e); err != nil || !may {
		return r.stopped(), err
	}
	if !r.trusted() {
		return weir.Result{}, lease.ErrLost // the process stood still; its timer may not have fired
	}
	if r.late() {
		return r.tooLate(), nil
	}
	result := r.sendBeside(ctx, e.KeyHash(), weir.Delivery{Message: &e.Message, Fence: r.fence, Attempt: e.AttemptCount + 1, Since: waitsSince(e)})
	return result, nil
}

// waitsSince is when the attempt that comes now could have been made, if nothing had been in
// its way.
func waitsSince(e *lane.Entry) time.Time {
	since := e.WaitingSince()
	if n := len(e.Attempts); n > 0 {
		if last := e.Attempts[n-1]; last.At.Add(last.Duration).After(since) {
			since = last.At.Add(last.Duration)
		}
	}
	return since
}

// enter waits until this process may make one more attempt.
func (r *run) enter(ctx context.Context) error {
	if r.slots == nil {
		return nil
	}
	select {
	case r.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) leave() {
	if r.slots != nil {
		<-r.slots
	}
}

// sendBeside makes the attempt, and goes on with releases meanwhile, except those of its key.
func (r *run) sendBeside(ctx context.Context, keyHash string, d weir.Delivery) weir.Result {
	r.sending = keyHash
	defer func() { r.sending = "" }()
	sent := make(chan weir.Result, 1)
	go func() { sent <- r.sendSafely(ctx, d) }()
	for {
		r.advance(ctx) // its error comes up again once the CMS has answered
		next, stop := r.startTimer(r.nextRead())
		select {
		case result := <-sent:
			stop()
			r.advance(ctx)
			return result
		case <-r.news:
		case <-next:
		}
		stop()
	}
}

// sendSafely turns a panic inside a delivery into that message's rejection: it would come
// again with each attempt.
func (r *run) sendSafely(ctx context.Context, d weir.Delivery) (result weir.Result) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("drain: panic in delivery", "message_id", d.Message.Public().String(), "err", fmt.Sprintf("%v\n%s", p, debug.Stack()))
			result = weir.Result{Outcome: weir.OutcomeRejected, Reason: "internal error while building the request", StartedAt: r.Now()}
		}
	}()
	return r.Sender.Send(ctx, d)
}

// conclude makes the change of an outcome.
func (r *run) conclude(c *candidate, result weir.Result, outcome weir.Outcome) (*lane.Change, error) {
	ch := &lane.Change{}
	var err error
	switch outcome {
	case weir.OutcomeDelivered, weir.OutcomeRejected:
		err = r.finish(c, ch, result, outcome)
	case weir.OutcomeRetry:
		if c.entry.AttemptsSinceReplay()+1 >= r.Attempts {
			err = r.finish(c, ch, result, outcome)
			break
		}
		c.entry.Record(result, r.fence, true)
		ch.Key = c.entry.KeyHash()
		err = r.postpone(c, ch, r.Now().Add(r.Backoff.retryDelay(c.entry.AttemptsSinceReplay(), result.RetryAfter)))
	case weir.OutcomeUnavailable:
		c.entry.DropBody() // it stays in the window, perhaps with thousands of others
		if wait := r.gate.pausedUntil.Sub(r.Now()); wait > 0 {
			r.log.Warn("drain: cms unavailable, lane pauses", "delay", wait, "err", result.Reason)
		}
	}
	r.position(ch)
	ch.UpdateTail(func(t *lane.Tail) { t.InFlightSeq, t.InFlightCrashes = 0, 0 })
	r.trying = 0
	r.noteError(ch, result, outcome)
	return ch, err
}

// maxLastError bounds what tail keeps of an error: each commit writes it again.
const maxLastError = 300

// noteError writes the reason of a failure into tail, for whoever looks at the lane.
func (r *run) noteError(ch *lane.Change, result weir.Result, outcome weir.Outcome) {
	if outcome == weir.OutcomeDelivered || outcome == weir.OutcomeNone {
		return
	}
	text, at := result.Reason, r.finishedAt()
	if len(text) > maxLastError {
		text = strings.ToValidUTF8(text[:maxLastError], "")
	}
	ch.UpdateTail(func(t *lane.Tail) { t.LastError, t.LastErrorAt = text, at })
}

// finish makes the message final.
func (r *run) finish(c *candidate, ch *lane.Change, result weir.Result, outcome weir.Outcome) error {
	c.entry.Record(result, r.fence, true)
	ch.Key = c.entry.KeyHash()
	r.dismiss(c, ch)
	delete(r.gate.blamed, c.entry.Seq())
	if c.entry.Message.Supersede && outcome == weir.OutcomeDelivered {
		r.remember(c.entry.SupersedeKey(), ch.SaveLatestVersion(c.entry))
	}
	at, stage := r.finishedAt(), finalStage(outcome)
	r.note(c, ch, stage)
	r.finished(c.entry, stage, at)
	if stage == weir.Dead && r.Store.Notifier != nil {
		ch.NotifyFinal(c.entry, stage, at, r.Store.Notifier.DeadReceivers(c.entry.Message.Contract))
	}
	return ch.Finish(c.entry, stage, at)
}
