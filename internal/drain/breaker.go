package drain

import (
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// If suspectRetries attempts in a row fail, of messages of at least suspectKeys keys and with no verdict between
	// them, the CMS is the cause, and not the messages. A verdict is an answer that judges a message: delivered or
	// rejected.
	suspectRetries = 5
	suspectKeys    = 3
	// A lane pauses after firstProbes refusals, and from then on after each laterProbes refusals. laterProbes is two,
	// so that each end of the log has one attempt between two pauses.
	firstProbes = 16
	laterProbes = 2
	// refusedPause is the longest pause of a lane while some key has not had its turn (see prober.go). The holder keeps
	// the lane during that pause.
	refusedPause = lingerMax
	// After alternateAfter failures in a row the holder takes messages from the beginning and from the end of the log
	// alternately, until alternateVerdicts verdicts have come in a row.
	alternateAfter    = 3
	alternateVerdicts = 5
	// After wholeLogAfter failures in a row the holder reads the log to its end, as far as memory allows, to
	// find a message that the CMS takes.
	wholeLogAfter = 8
	// patienceResetAfter is longer than any pause that the breaker begins. If the CMS has refused no message for so
	// long, because an operator or the calendar stopped the lane, the patience begins anew.
	patienceResetAfter = 2 * maxDelay
	// patienceDefault is how long the CMS may refuse all messages before refusals count as attempts.
	patienceDefault = 24 * time.Hour
)

// breaker is the circuit breaker of a lane. It decides whether the holder may send a message to the CMS now, and
// whether the message or the CMS is the cause of a failure. It is a state machine without clock or I/O.
//
// If the CMS is away (no connection, 401, 429, 503 …), the lane pauses. If the CMS answers and refuses (403, or 500
// to message after message), it may refuse these messages or all messages. The holder then tries the other keys until
// the CMS takes a message (prober.go). Only keys that had their turn wait for the end of a long pause.
type breaker struct {
	backoff  Backoff
	settle   time.Duration // how long the CMS may work on a request that it did not answer
	patience time.Duration // how long the CMS may refuse all messages before refusals count as attempts

	settleUntil time.Time
	settleTail  time.Time // settleUntil as written into tail, for processes whose clocks differ
	pausedUntil time.Time
	pauseReason string
	pauseCount  int // pauses in a row

	retryStreak     int                 // retries in a row without a verdict between
	streakKeys      map[string]bool     // the ordering keys of these retries
	verdicts        int                 // raised by verdicts, also those of other holders; see resetStreaks
	suspects        map[int64]suspicion // by sequence number; see suspicion
	probedKeys      map[string]bool     // hashes of the keys that had their turn in this round: other keys go first
	deliveredBefore int64               // tail's number of deliveries when this process last left the lane

	refusals
}

// refusals has the state that a breaker derives from failures. A verdict resets all of it except alternateFor and
// refusedAt.
type refusals struct {
	failures      int       // attempts in a row without a verdict
	alternateFor  int       // after so many verdicts in a row, messages come only from the log's beginning; 0 = now
	probes        int       // refusals since the last pause
	nextRoundAt   time.Time // when the next round begins, after each key had its turn; zero = at once
	refusingSince time.Time // since when the CMS has refused all messages; zero = it does not
	refusedAt     time.Time // time of the last refusal
	probedBelow   int64     // see lane.CMSPause
}

// suspicion is a breaker's record of a message that the CMS refused, or that was tried while the CMS was away.
type suspicion struct {
	verdicts int  // breaker.verdicts when this message failed last
	isProven bool // the CMS judged another message between two failures of this one: the message is the cause
}

// maxSuspects bounds the messages that a breaker remembers. Beyond that number it forgets all of them.
const maxSuspects = 2 * readAheadMax

// newBreaker returns the breaker of one lane in one process. The breaker outlives the sessions of the process. So after
// a pause it still knows which keys had their turn, and which messages failed while others succeeded.
func newBreaker(b Backoff, settle, patience time.Duration) *breaker {
	if patience == 0 {
		patience = patienceDefault
	}
	return &breaker{backoff: b, settle: settle, patience: patience, streakKeys: map[string]bool{},
		suspects: map[int64]suspicion{}, probedKeys: map[string]bool{}}
}

// adoptTail takes over the state that the last holder, in this process or another, wrote into tail. The settle time of
// this process's own requests still counts, because tail does not have it if the process had lost the lane. adoptTail
// shortens times in tail that are further ahead than settings and the allowed difference of clocks permit. Refusals
// that another holder got count like those of this process. Otherwise, if a lane moves often, each holder would try
// only the lane's first messages.
func (g *breaker) adoptTail(t lane.Tail, now time.Time) {
	settles := limitTime(t.SettleUntil, now.Add(g.settle+2*maxSkew))
	g.settleUntil, g.settleTail = laterOf(g.settleUntil, settles), laterOf(g.settleTail, settles)
	g.pausedUntil = limitTime(t.PausedUntil, now.Add(maxDelay))
	g.pauseReason, g.pauseCount = t.PauseReason, int(t.PauseCount)
	if t.Counts.Delivered > g.deliveredBefore {
		g.resetStreaks() // another process has delivered since; the failures here are older
	}
	if !t.RefusingSince.IsZero() && g.refusingSince.IsZero() {
		g.failures, g.alternateFor = max(g.failures, wholeLogAfter), alternateVerdicts
	}
	g.refusingSince, g.probedBelow, g.nextRoundAt = t.RefusingSince, t.ProbedBelow, time.Time{}
	if t.ProbedBelow > 0 {
		g.nextRoundAt = g.pausedUntil
	}
	g.refusedAt = laterOf(g.refusedAt, t.LastErrorAt)
}

// recordDelivered is called when the process leaves the lane, with tail as last committed.
func (g *breaker) recordDelivered(t lane.Tail) { g.deliveredBefore = t.Counts.Delivered }

// forgetMessage is called for a message that was cancelled. The message's key no longer counts as one of the keys that
// failed in a row.
func (g *breaker) forgetMessage(e *lane.Entry) { delete(g.streakKeys, e.Message.Key) }

// closedUntil returns the time before which no message is sent.
func (g *breaker) closedUntil() time.Time {
	if g.settleUntil.After(g.pausedUntil) {
		return g.settleUntil
	}
	return g.pausedUntil
}

// classifyResult records a result, and returns its outcome for the message.
func (g *breaker) classifyResult(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if r.Unanswered {
		g.beginSettling(now)
	}
	switch {
	case r.Outcome == weir.OutcomeDelivered,
		r.Outcome == weir.OutcomeRejected && r.Status != 0: // status 0 = Weir could not send the message
		g.recordVerdict(e)
	case r.Outcome == weir.OutcomeRetry:
		return g.classifyRetry(e, r, now)
	case r.Outcome == weir.OutcomeUnavailable:
		g.countFailure()
		if r.Refused {
			return g.classifyRefusal(e, r, now)
		}
		return g.classifyUnavailable(e, r, now)
	}
	return r.Outcome
}

// classifyRetry classifies a failure. The message is the cause, unless so many attempts in a row failed that the CMS is
// the cause.
func (g *breaker) classifyRetry(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	g.countFailure()
	g.retryStreak++
	g.streakKeys[e.Message.Key] = true
	switch {
	case g.retryStreak < suspectRetries || len(g.streakKeys) < suspectKeys:
		return weir.OutcomeRetry
	case r.Status != 0 && !r.Unanswered:
		return g.classifyRefusal(e, r, now)
	}
	return g.classifyUnavailable(e, r, now)
}

// countFailure counts an attempt without a verdict.
func (g *breaker) countFailure() {
	g.failures++
	if g.failures >= alternateAfter || g.alternateFor > 0 {
		g.alternateFor = alternateVerdicts
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// limitTime returns the earlier of two times.
func limitTime(at, latest time.Time) time.Time {
	if at.After(latest) {
		return latest
	}
	return at
}

// beginSettling is called when the CMS may still work on a request.
func (g *breaker) beginSettling(now time.Time) {
	g.settleUntil = now.Add(g.settle)
	g.settleTail = g.settleUntil.Add(maxSkew)
}

// recordVerdict records that the CMS works: it has judged a message.
func (g *breaker) recordVerdict(e *lane.Entry) {
	g.resetStreaks()
	g.pauseCount, g.pausedUntil, g.pauseReason = 0, time.Time{}, ""
	delete(g.suspects, e.Seq())
}

// resetStreaks counts a verdict, and forgets the failures in a row.
func (g *breaker) resetStreaks() {
	g.verdicts++
	g.retryStreak, g.failures, g.probes, g.alternateFor = 0, 0, 0, max(0, g.alternateFor-1)
	g.refusingSince, g.probedBelow, g.nextRoundAt = time.Time{}, 0, time.Time{}
	clear(g.streakKeys)
	clear(g.probedKeys)
}

// liftPause ends the pause for the CMS, because an operator has resumed the lane. All keys have another turn.
func (g *breaker) liftPause() {
	g.pausedUntil, g.nextRoundAt, g.pauseReason, g.pauseCount = time.Time{}, time.Time{}, "", 0
	clear(g.probedKeys)
}

// classifyUnavailable pauses the lane, unless the CMS has judged another message between two attempts of this one. If
// it has, this message is the cause, and the attempt counts.
func (g *breaker) classifyUnavailable(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if g.hasVerdictSince(e) {
		return weir.OutcomeRetry
	}
	g.refusingSince, g.probedBelow, g.nextRoundAt = time.Time{}, 0, time.Time{}
	g.probedKeys[e.KeyHash()], g.pauseReason = true, r.Reason
	g.beginPause(r.RetryAfter, now, maxDelay)
	return weir.OutcomeUnavailable
}

// classifyRefusal records a refusal. The attempt counts in two cases. In the first case the CMS has judged another
// message between two refusals of this one. In the second case the CMS has refused all messages for the whole
// patience, and this message has waited as long: it must become final even if the CMS never takes another message. In
// all other cases the lane goes on with the other keys, and pauses after some refusals.
func (g *breaker) classifyRefusal(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if g.refusingSince.IsZero() || now.Sub(g.refusedAt) > patienceResetAfter {
		g.refusingSince = now
	}
	g.refusedAt = now
	between := g.hasVerdictSince(e)
	b := g.suspects[e.Seq()]
	b.isProven = b.isProven || between
	g.suspects[e.Seq()] = b
	if b.isProven || now.Sub(laterOf(g.refusingSince, e.WaitingSince())) >= g.patience {
		return weir.OutcomeRetry
	}
	g.probedKeys[e.KeyHash()], g.pauseReason = true, r.Reason
	g.probes++
	if r.RetryAfter > 0 { // Retry-After applies to all messages
		g.pausedUntil, g.probedBelow, g.nextRoundAt = now.Add(limitDelay(0, r.RetryAfter)), 0, time.Time{}
	}
	return weir.OutcomeUnavailable
}

// hasProbedEnough reports whether so many messages were refused that the lane has to pause.
func (g *breaker) hasProbedEnough() bool {
	return g.probes >= firstProbes || g.pauseCount > 0 && g.probes >= laterProbes
}

// hasVerdictSince reports whether the CMS has judged another message since this one failed last. It also records that
// this message has failed now.
func (g *breaker) hasVerdictSince(e *lane.Entry) bool {
	if len(g.suspects) > maxSuspects {
		clear(g.suspects)
	}
	b, before := g.suspects[e.Seq()]
	since := before && g.verdicts > b.verdicts
	b.verdicts = g.verdicts
	g.suspects[e.Seq()] = b
	return since
}

// beginPause pauses the lane for the next backoff, but for no longer than longest. If the CMS asked for a longer pause
// (Retry-After), the lane pauses as long as asked, up to maxDelay.
func (g *breaker) beginPause(asked time.Duration, now time.Time, longest time.Duration) {
	g.pauseCount++
	g.probes = 0
	delay := max(min(g.backoff.pauseDelay(g.pauseCount, 0), longest), limitDelay(0, asked))
	g.pausedUntil = laterOf(g.pausedUntil, now.Add(delay))
}

// endRound is called after each key had its turn. It reports whether the next round of turns begins now. If a message
// was refused since the last pause, or if that pause has not ended, a pause comes first.
func (g *breaker) endRound(now time.Time) bool {
	if g.probes > 0 {
		g.pauseRound(now)
	}
	if g.nextRoundAt.After(now) {
		g.pausedUntil = laterOf(g.pausedUntil, g.nextRoundAt)
		return false
	}
	clear(g.probedKeys)
	return true
}

// pauseRound pauses the lane after each key had its turn. New messages that are refused during such a pause wait for
// its end with the others. They do not prolong the pause: otherwise they could delay the next round without end.
func (g *breaker) pauseRound(now time.Time) {
	if g.probes = 0; !g.nextRoundAt.After(now) {
		g.beginPause(0, now, maxDelay)
		g.nextRoundAt = g.pausedUntil
	}
	g.pausedUntil = laterOf(g.pausedUntil, g.nextRoundAt)
}

// isResting reports whether messages that had their turn wait for the next round.
func (g *breaker) isResting(now time.Time) bool { return g.probedBelow > 0 && g.nextRoundAt.After(now) }

// hadTurn reports whether a message of the log waits for the next round, because all keys up to it had their turn.
func (g *breaker) hadTurn(e *lane.Entry, now time.Time) bool {
	return g.isResting(now) && e.Seq() < g.probedBelow
}

// letUntriedPass lets messages that had no turn be sent during a pause for refused messages.
func (g *breaker) letUntriedPass(now time.Time) {
	if g.isResting(now) && g.pausedUntil.Equal(g.nextRoundAt) {
		g.pausedUntil = time.Time{}
	}
}

// wantsWholeLog reports whether the holder is to read the log to its end, to find a message that the CMS takes.
func (g *breaker) wantsWholeLog() bool {
	return !g.refusingSince.IsZero() && g.failures >= wholeLogAfter
}

// maxSkew is how far the clocks of two processes may differ. The clock check of /api/checks warns if the difference is
// at least maxSkew.
const maxSkew = 2 * time.Second

// saveTo writes into tail the state that must outlive this holder. The settle time includes the allowed difference of
// clocks, so that the next holder does not begin too early.
func (g *breaker) saveTo(t *lane.Tail) {
	t.PausedUntil = laterOf(g.pausedUntil, g.nextRoundAt)
	t.PauseReason, t.PauseCount = g.pauseReason, int64(g.pauseCount)
	t.RefusingSince, t.ProbedBelow = g.refusingSince, g.probedBelow
	t.SettleUntil = g.settleTail
}
