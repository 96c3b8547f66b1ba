package drain

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// maxLastError bounds the bytes of an error's text in tail, because each commit writes that text again.
const maxLastError = 300

// outcomeRecorder turns the outcome of an attempt into a change: the message becomes final, waits for its retry, or
// stays as it was because the attempt does not count.
type outcomeRecorder struct {
	laneScope
	attempts   int // see Config.Attempts
	leastTime  leastTime
	braked     *brakedMessages
	backoff    Backoff
	journal    *journal
	readAhead  *readAhead
	keys       *keyStates
	breaker    *breaker
	guard      *crashGuard
	history    *deliveryHistory
	versions   *latestVersions
	remembered *rememberedIDs
}

// recordOutcome records the outcome of an attempt, and hands the change to the committer. The parameter outcome is the
// outcome that counts for the message. It can differ from result.Outcome.
func (o *outcomeRecorder) recordOutcome(ctx context.Context, c *candidate, result weir.Result,
	outcome weir.Outcome,
) error {
	number := c.entry.AttemptCount + 1
	o.observer.Attempted(o.lane, &c.entry.Message, result, outcome)
	change, err := o.buildChange(c, result, outcome)
	o.logAttempt(ctx, c.entry, number, result, outcome)
	if err != nil {
		return err
	}
	if c.entry.Stage.Final() {
		c.entry.Message.Body = nil // the body is not needed any more, and the commit can take a while
	}
	o.journal.record(change, outcome != weir.OutcomeDelivered || o.guard.isCautious())
	return o.guard.countMessage(ctx)
}

// logAttempt logs an attempt. The default level shows an attempt that made its message final, and one that failed. The
// lines of one that is repeated are few: pauses and backoff bound them.
func (o *outcomeRecorder) logAttempt(ctx context.Context, e *lane.Entry, number int, result weir.Result,
	outcome weir.Outcome,
) {
	level := slog.LevelDebug
	if e.Stage.Final() || outcome == weir.OutcomeRetry || outcome == weir.OutcomeUnavailable {
		level = slog.LevelInfo
	}
	reason := result.Reason
	if result.Outcome == weir.OutcomeDelivered {
		reason = ""
	}
	o.log.LogAttrs(ctx, level, "drain: attempt", slog.String("message_id", e.Message.Public().String()),
		slog.Int64("seq", e.Seq()), slog.Int64("fence", o.fence), slog.Int("attempt", number),
		slog.String("outcome", string(outcome)), slog.String("stage", string(e.Stage)),
		slog.Int("status", result.Status), slog.Int64("duration_ms", result.Duration.Milliseconds()),
		slog.String("err", reason), slog.String("trace_id", e.Message.TraceID()))
}

func (o *outcomeRecorder) buildChange(c *candidate, result weir.Result, outcome weir.Outcome,
) (*lane.Change, error) {
	ch := &lane.Change{}
	var err error
	switch outcome {
	case weir.OutcomeDelivered, weir.OutcomeRejected:
		err = o.finalize(c, ch, result, outcome)
	case weir.OutcomeRetry:
		if o.hasTriedEnough(c.entry, result) {
			err = o.finalize(c, ch, result, outcome)
			break
		}
		o.showRetryUntil(c.entry, result)
		c.entry.Record(result, o.fence, true)
		ch.Key = c.entry.KeyHash()
		delay := o.backoff.retryDelay(c.entry.AttemptsSinceReplay(), result.RetryAfter)
		err = o.scheduleRetry(c, ch, o.now().Add(delay))
	case weir.OutcomeUnavailable:
		if c.isBraked {
			err = o.holdBraked(c, ch, result)
			break
		}
		if result.Unsent {
			err = o.holdUnread(c, ch, result)
			break
		}
		c.entry.DropBody() // the message stays in readAhead, perhaps with thousands of other messages
		if wait := o.breaker.pausedUntil.Sub(o.now()); wait > 0 {
			o.log.Warn("drain: cms unavailable, lane pauses", "delay_ms", wait.Milliseconds(), "err", result.Reason)
		} else if !result.Refused {
			o.log.Warn("drain: cms unavailable for a message, its key waits", "message_id",
				c.entry.Message.Public().String(), "err", result.Reason)
		}
	}
	o.remembered.recordResult(c, ch, result)
	o.guard.clearInFlight(ch, outcome)
	ch.UpdateTail(forgetSlowAttempt)
	o.saveError(ch, result, outcome)
	return ch, err
}

// saveError writes the reason of a failed attempt into tail, for operators who look at the lane.
func (o *outcomeRecorder) saveError(ch *lane.Change, result weir.Result, outcome weir.Outcome) {
	if outcome == weir.OutcomeDelivered || outcome == weir.OutcomeNone {
		return
	}
	text, at := result.Reason, storedTime(o.now())
	if len(text) > maxLastError {
		text = strings.ToValidUTF8(text[:maxLastError], "") + "…" // redaction looks for this end of a cut text
	}
	ch.UpdateTail(func(t *lane.Tail) { t.LastError, t.LastErrorAt = text, at })
}

// finalize makes the message delivered or dead.
func (o *outcomeRecorder) finalize(c *candidate, ch *lane.Change, result weir.Result, outcome weir.Outcome) error {
	c.entry.Record(result, o.fence, true)
	ch.Key = c.entry.KeyHash()
	o.removeFinal(c, ch)
	o.breaker.forgetFinal(c.entry)
	if c.entry.Message.Supersede && outcome == weir.OutcomeDelivered {
		o.saveVersion(c.entry, ch)
	}
	at, stage := storedTime(o.now()), weir.Dead
	if outcome == weir.OutcomeDelivered {
		stage = weir.Delivered
		ch.UpdateTail(func(t *lane.Tail) { t.LastDeliveredAt = at }) // operators see that an error is over
	}
	o.history.recordFinal(c, ch, stage)
	o.reportFinal(c.entry, stage, at)
	if stage == weir.Dead && o.store.Notifier != nil {
		ch.NotifyFinal(c.entry, stage, at, o.store.Notifier.DeadReceivers(c.entry.Message.Contract))
	}
	return ch.Finish(c.entry, stage, at)
}

// saveVersion records the version of a delivered message, with a warning if the version is suspiciously high.
func (o *outcomeRecorder) saveVersion(e *lane.Entry, ch *lane.Change) {
	key := e.SupersedeKey()
	previous := weir.Version{}
	if known := o.versions.byKey[key]; !known.IsZero() {
		previous = parseVersion(known.Version)
	}
	warning := parseVersion(e.Message.Version).DescribeJump(previous, o.now())
	if warning != "" {
		o.log.Warn("drain: delivered version is beyond reason", "message_id", e.Message.Public().String(),
			"seq", e.Seq(), "fence", o.fence, "reason", warning)
	}
	o.versions.remember(key, ch.SaveLatestVersion(e, warning))
}

// removeFinal takes a message that became final out of the read-ahead or out of its block.
func (o *outcomeRecorder) removeFinal(c *candidate, ch *lane.Change) {
	if c.block == nil {
		o.readAhead.removeEntry(c.entry)
		return
	}
	o.keys.unpark(c.block, ch, c.entry.AsHeld())
}

// scheduleRetry makes a message wait for its retry. Later messages of its key wait, too, except with onFailure: skip.
func (o *outcomeRecorder) scheduleRetry(c *candidate, ch *lane.Change, nextAt time.Time) error {
	k := c.block
	if k == nil {
		k = o.keys.holdFromLog(c.entry)
		o.readAhead.removeEntry(c.entry)
	}
	k.retryAt(nextAt, o.keys.keepRetry(c.entry))
	ch.SaveBlock(k.KeyBlock)
	return ch.Retry(c.entry, k.ID, nextAt)
}
