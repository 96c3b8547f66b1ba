package drain

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// maxLastError bounds the bytes of an error's text in tail, because each commit writes that text
// again.
const maxLastError = 300

// outcomeRecorder turns the outcome of an attempt into a change: the message becomes final, waits
// for its retry, or stays as it was because the attempt does not count.
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

// recordOutcome records the outcome of an attempt, and hands the change to the committer. The
// parameter outcome is the outcome that counts for the message. It can differ from result.Outcome.
func (o *outcomeRecorder) recordOutcome(ctx context.Context, c *candidate, result weir.Result,
	outcome weir.Outcome,
) error {
	number := c.entry.AttemptCount + 1
	hasBegun := outcome != weir.OutcomeNone || !result.Unsent
	if hasBegun {
		o.observer.Attempted(o.lane, &c.entry.Message, result, outcome)
	}

	change, err := o.buildChange(c, result, outcome)
	o.logAttempt(ctx, c.entry, number, result, outcome)
	if err != nil {
		return err
	}

	if c.entry.Stage.Final() {
		// the body is not needed any more, and the commit can take a while
		c.entry.Message.Body = nil
	}

	o.journal.record(change,
		hasBegun && outcome != weir.OutcomeDelivered || o.guard.isCautious())

	return o.guard.countMessage(ctx)
}

// logAttempt logs an attempt. The default level shows an attempt that made its message final, and
// one that failed. The lines of one that is repeated are few: pauses and backoff bound them.
func (o *outcomeRecorder) logAttempt(ctx context.Context, e *lane.Entry, number int,
	result weir.Result, outcome weir.Outcome,
) {
	level := slog.LevelDebug
	if e.Stage.Final() || outcome == weir.OutcomeRetry || outcome == weir.OutcomeUnavailable {
		level = slog.LevelInfo
	}

	reason := result.Reason
	if result.Outcome == weir.OutcomeDelivered {
		reason = ""
	}

	o.log.LogAttrs(ctx, level, "drain: attempt",
		slog.String("message_id", e.Message.Public().String()),
		slog.Int64("seq", e.Seq()), slog.Int64("fence", o.fence), slog.Int("attempt", number),
		slog.String("outcome", string(outcome)), slog.String("stage", string(e.Stage)),
		slog.Int("status", result.Status),
		slog.Int64("duration_ms", result.Duration.Milliseconds()),
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

		// the message stays in readAhead, perhaps with thousands of other messages
		c.entry.DropBody()

		if wait := o.breaker.pausedUntil.Sub(o.now()); wait > 0 {
			o.log.Warn("drain: cms unavailable, lane pauses", "delay_ms", wait.Milliseconds(),
				"err", result.Reason)
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
		// redaction looks for this end of a cut text
		text = strings.ToValidUTF8(text[:maxLastError], "") + "…"
	}

	ch.UpdateTail(func(t *lane.Tail) { t.LastError, t.LastErrorAt = text, at })
}

// finalize makes the message delivered or dead.
func (o *outcomeRecorder) finalize(c *candidate, ch *lane.Change, result weir.Result,
	outcome weir.Outcome) error {
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
		// operators see that an error is over
		ch.UpdateTail(func(t *lane.Tail) { t.LastDeliveredAt = at })
	}

	o.history.recordFinal(c, ch, stage)
	o.reportFinal(c.entry, stage, at)
	if stage == weir.Dead && o.store.Notifier != nil {
		ch.NotifyFinal(c.entry, stage, at, o.store.Notifier.DeadReceivers(c.entry.Message.Contract))
	}

	return ch.Finish(c.entry, stage, at)
}

// saveVersion records the version of a delivered message, with a warning if the version is
// suspiciously high.
func (o *outcomeRecorder) saveVersion(e *lane.Entry, ch *lane.Change) {
	key := e.SupersedeKey()
	previous := weir.Version{}
	if known := o.versions.byKey[key]; !known.IsZero() {
		previous = parseVersion(known.Version)
	}

	warning := parseVersion(e.Message.Version).DescribeJump(previous, o.now())
	if warning != "" {
		o.log.Warn("drain: delivered version is beyond reason", "message_id",
			e.Message.Public().String(), "seq", e.Seq(), "fence", o.fence, "reason", warning)
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

// scheduleRetry makes a message wait for its retry. Later messages of its key wait, too, except
// with onFailure: skip.
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

// trackedKeys has the keys whose deliveries are recorded. All keys with dead messages are among
// them. The next session of this process reuses the keys, unless another process has held the lane
// in between.
type trackedKeys struct {
	keys   map[string]bool // by hash
	isFull bool            // there are too many keys: each key counts as tracked
}

func (t *trackedKeys) hasKey(keyHash string) bool { return t.isFull || t.keys[keyHash] }

// addKey tracks a key. If lane.MaxDeadKeys are tracked, it tracks all keys from then on, as a
// holder does that finds so many in storage.
func (t *trackedKeys) addKey(keyHash string) {
	if t.isFull {
		return
	}
	if t.keys[keyHash] = true; len(t.keys) > lane.MaxDeadKeys {
		t.keys, t.isFull = nil, true
	}
}

// deliveryHistory records the last delivery of each tracked key. A replay without force is refused
// if a message that is later in the key's order was delivered.
type deliveryHistory struct {
	laneScope
	tracked *trackedKeys
}

// loadTracked reads the keys with dead messages from storage, unless the last session's keys are
// reused.
func (h *deliveryHistory) loadTracked(ctx context.Context, t lane.Tail) error {
	if h.tracked != nil {
		return nil
	}

	h.tracked = &trackedKeys{keys: map[string]bool{}}
	if t.Counts.Dead == 0 {
		return nil
	}

	keys, all, err := h.store.DeliveryState().ReadDeadKeys(ctx, h.lane)
	if err != nil {
		return err
	}

	h.tracked = &trackedKeys{keys: keys, isFull: all}

	return nil
}

// readLastPos returns the position of the last recorded delivery of an entry's key; "" = none is
// recorded. For most messages it returns "" without a read. It reads only for a message that was
// replayed, or whose contract has onFailure: skip, because only such a message can be sent after a
// later message of its key.
func (h *deliveryHistory) readLastPos(ctx context.Context, e *lane.Entry) (string, error) {
	if !h.tracked.hasKey(e.KeyHash()) || (!e.IsReplayed() && !e.Message.Skip) {
		return "", nil
	}
	l, err := h.store.DeliveryState().ReadLastDelivery(ctx, h.lane, e.KeyHash())
	return l.OrderPos, err
}

// recordFinal tracks the key of a message that becomes dead. If a message of a tracked key is
// delivered, recordFinal adds the record of the delivery to the change. It adds none if a message
// that is later in the key's order was delivered already.
func (h *deliveryHistory) recordFinal(c *candidate, ch *lane.Change, stage weir.Stage) {
	key := c.entry.KeyHash()
	switch {
	case stage == weir.Dead:
		h.tracked.addKey(key)
	case h.tracked.hasKey(key) && c.entry.AsHeld().OrderPos >= c.lastPos:
		ch.SaveLastDelivery(c.entry)
	}
}

// A message does not die of time alone. Its attempts make it dead without a verdict of the CMS only
// if both are used up: the number of attempts (Config.Attempts), and the least time between the
// beginnings of the first and the last of them (Config.RetryFor). Otherwise a CMS whose database
// restarts would end a message of a quiet lane within seconds: backoffs are short at first, and too
// few keys fail to show that the CMS is the cause.
//
// The first attempt's time is in the message's row, so it outlasts restarts and takeovers. A replay
// begins anew.
//
//	no verdict                                    needs attempts   needs the least time
//	outcome retry: 500, no answer, success unmet  yes              yes
//	refused or away for longer than patience      yes              yes
//	storage does not return the body              yes              yes
//	panic while sending                           yes              yes
//	processes ended while they sent it            -                yes (attempter.judgePoison)
//	storage has lost the body                     -                -
//	contract missing for longer than patience     -                -
//
// In the last two cases no further attempt could be made.

// leastTime has the least time for which a message is tried.
type leastTime struct {
	retryFor func(*lane.Entry) time.Duration // see Config.RetryFor
}

// endsAt returns the time before which failed attempts do not make a message dead. Its present
// attempt began at startedAt.
func (l leastTime) endsAt(e *lane.Entry, startedAt time.Time) time.Time {
	first := e.FirstFailedAt()
	if first.IsZero() || first.After(startedAt) { // the clock of the holder that wrote it was ahead
		first = startedAt
	}
	return first.Add(l.retryFor(e))
}

// isOver reports whether the message was tried for the least time when its present attempt began.
func (l leastTime) isOver(e *lane.Entry, startedAt time.Time) bool {
	return !l.endsAt(e, startedAt).After(startedAt)
}

// hasTriedEnough reports whether a failed attempt that counts makes its message dead.
func (o *outcomeRecorder) hasTriedEnough(e *lane.Entry, result weir.Result) bool {
	return e.AttemptsSinceReplay()+1 >= o.attempts && o.leastTime.isOver(e, result.StartedAt)
}

// showRetryUntil records, for operators, the time until which only a rejection makes the message
// dead.
func (o *outcomeRecorder) showRetryUntil(e *lane.Entry, result weir.Result) {
	if o.leastTime.retryFor(e) == 0 {
		e.SetRetryUntil(time.Time{})
		return
	}
	e.SetRetryUntil(storedTime(o.leastTime.endsAt(e, result.StartedAt)))
}

// judgePoison returns the result for a message with which processes ended: tail named it during
// cautiousAfter crashes in a row. The message need not be the cause, because the host may have
// ended the processes. So it waits until the least time is over, and is then sent again. It is dead
// if processes end with it again.
func (a *attempter) judgePoison(e *lane.Entry) weir.Result {
	result := a.rejectUnsent(reasonPoison)
	if ends := a.leastTime.endsAt(e, result.StartedAt); ends.After(result.StartedAt) {
		result.Outcome, result.RetryAfter = weir.OutcomeRetry, ends.Sub(result.StartedAt)
		a.guard.pardon(e.Seq())
	}
	return result
}
