package drain

import (
	"net/http"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/weir"
)

// Words in this file:
//
//   - A verdict is an answer with which the CMS takes or rejects a message.
//   - A failure is an attempt with the outcome retry or unavailable.
//   - A refusal is an answer of 403, or an error such as 500 after several failures in a row. The
//     CMS may still take messages of other keys.
//   - In a round each key has one attempt, its turn. The first round begins with the first refusal.
//     When each key had its turn, the lane pauses, and then the next round begins.

const (
	// If suspectRetries failures come without a verdict between them, and have at least suspectKeys
	// different keys, the CMS is the cause and not the messages. Only failures with the outcome
	// retry are counted. In a quiet lane fewer keys suffice, see prober.countSuspectKeys.
	suspectRetries = 5
	suspectKeys    = 3
	// A lane pauses after firstProbes refusals, and then after every laterProbes refusals.
	// laterProbes is two because the holder takes messages from both ends of the log alternately.
	firstProbes = 16
	laterProbes = 2
	// refusedPause is the longest pause of a lane within a round. It is lingerMax, because in a
	// longer pause the holder would leave the lane.
	refusedPause = lingerMax
	// After alternateAfter failures in a row the holder takes messages from the beginning and from
	// the end of the log alternately. It stops doing so after alternateVerdicts verdicts in a row.
	alternateAfter    = 3
	alternateVerdicts = 5
	// After wholeLogAfter failures in a row, while the CMS refuses messages, the holder reads the
	// log to its end, as far as memory allows. It looks for a message that the CMS takes.
	wholeLogAfter = 8
	// If no message was refused for patienceResetAfter, the time of Config.Patience begins anew.
	// Then the lane was stopped by an operator or the calendar: the breaker's own pauses are
	// shorter.
	patienceResetAfter = 2 * maxDelay
	// patienceDefault is the default of Config.Patience.
	patienceDefault = 24 * time.Hour
)

// breaker is the circuit breaker of a lane. It decides whether a message may be sent to the CMS
// now, and whether a failure is the fault of the message or of the CMS. It is a state machine
// without clock or I/O.
//
// If the CMS is away (no connection, 401, 429, 503), the lane pauses. A refusal does not show
// whether the CMS refuses only this message or all messages. So the holder tries the other keys
// until the CMS takes a message (prober.go). In the pause between two rounds, a message of a key
// that had no turn can still be sent. As long as the CMS is away for messages of one key only, this
// counts as a refusal, too: the cause can be the request of this message.
type breaker struct {
	backoff Backoff
	settle  time.Duration // how long the CMS may work on a request that got no answer
	// how long the CMS may refuse all messages before refusals count as attempts
	patience time.Duration

	settleUntil time.Time
	// the end of the settle time that saveTo writes into tail; it includes maxSkew
	settleTail  time.Time
	pausedUntil time.Time
	pauseReason string
	pauseCount  int    // pauses in a row
	pauseCause  string // see lane.CMSPause
	isOverload  bool   // the last failure was an answer 429
	hasPaused   bool   // the lane has paused since its last delivery
	// planPause returns the length of a pause for which the CMS did not ask, see outlook.planPause.
	// nil = the length that the backoff asks for.
	planPause func(now time.Time, delay time.Duration) time.Duration

	retryStreak int // failures with the outcome retry since the last verdict
	suspectKeys int // number of keys that must fail until the CMS is the cause
	// the last holder took the CMS for the cause, and no verdict came since
	isSuspected bool
	streakKeys  keySet // the keys of the failures in retryStreak
	// rises at each verdict, and when another holder has delivered
	verdicts   int
	suspects   map[int64]suspicion // by sequence number
	probedKeys map[string]bool     // hashes of the keys that had their turn in this round
	// the keys for which the CMS was away since the last verdict
	awayKeys keySet
	// number of deliveries in tail when this process last left the lane
	deliveredBefore int64

	refusals
}

// refusals has the state that a breaker derives from failures. A verdict resets all fields except
// alternateFor and refusedAt.
type refusals struct {
	failures int // failures since the last verdict
	// number of verdicts until the holder stops alternating; 0 = it does not alternate
	alternateFor int
	probes       int       // refusals since the last pause
	nextRoundAt  time.Time // no round begins before this time; zero = no limit
	// when the CMS began to refuse all messages; zero = it does not refuse all
	refusingSince time.Time
	refusedAt     time.Time // time of the last refusal
	// if not 0: the keys of all log messages below this number had their turn
	probedBelow int64
}

// suspicion is a breaker's record of a message that the CMS refused, or that was sent while the CMS
// was away.
type suspicion struct {
	verdicts int // breaker.verdicts when this message failed last
	// a verdict came between two failures of this message, so the message is the cause
	isProven bool
}

// keySet has hashes of keys, so the spellings of a folded key count as one key: the fault of one
// item is not taken for one of the CMS. It has maxSetKeys at most, because only their number up to
// suspectKeys matters, and in an outage each waiting key fails.
type keySet map[string]bool

const maxSetKeys = 16

func (s keySet) add(e *lane.Entry) {
	if len(s) < maxSetKeys {
		s[e.KeyHash()] = true
	}
}

// maxSuspects bounds breaker.suspects: a larger map is cleared.
const maxSuspects = 2 * readAheadMax

// newBreaker returns the breaker of one lane in one process. The breaker outlives the sessions of
// the process, so that after a long pause it still knows which keys had their turn.
func newBreaker(b Backoff, settle, patience time.Duration) *breaker {
	if patience == 0 {
		patience = patienceDefault
	}
	return &breaker{backoff: b, settle: settle, patience: patience, suspectKeys: suspectKeys,
		streakKeys: keySet{}, suspects: map[int64]suspicion{},
		probedKeys: map[string]bool{}, awayKeys: keySet{}}
}

// adoptTail takes over the state that the last holder, in this process or another, wrote into tail:
//
//   - The settle time of this process's own requests still counts. If this process lost the lane,
//     tail does not have that time.
//   - Times in tail that are too far in the future are shortened, because the last holder's clock
//     may have been wrong.
//   - Refusals by the CMS count even if another holder got them. Otherwise, in a lane that often
//     changes its holder, each holder would try only the first messages of the lane. For the same
//     reason the CMS stays the cause of failures until the next verdict: otherwise the first
//     failures of each holder would count for their messages.
func (g *breaker) adoptTail(t lane.Tail, now time.Time) {
	settles := clock.Earlier(t.SettleUntil, now.Add(g.settle+2*maxSkew))
	g.settleUntil, g.settleTail = clock.Later(g.settleUntil, settles), clock.Later(g.settleTail, settles)
	g.pausedUntil = clock.Earlier(t.PausedUntil, now.Add(maxDelay))
	g.pauseReason, g.pauseCount, g.pauseCause = t.PauseReason, int(t.PauseCount), t.PauseCause
	g.hasPaused = g.hasPaused || t.PauseCount > 0
	if t.Counts.Delivered > g.deliveredBefore {
		g.resetStreaks() // another process has delivered messages after this process's failures
	}

	if !t.RefusingSince.IsZero() && g.refusingSince.IsZero() {
		g.failures, g.alternateFor = max(g.failures, wholeLogAfter), alternateVerdicts
	}

	g.refusingSince, g.probedBelow, g.nextRoundAt = t.RefusingSince, t.ProbedBelow, time.Time{}
	if t.ProbedBelow > 0 {
		g.nextRoundAt = g.pausedUntil
	}

	g.refusedAt = clock.Later(g.refusedAt, t.LastErrorAt)
	g.isSuspected = t.PauseCount > 0 || !t.RefusingSince.IsZero()
}

// recordDelivered is called with the tail that was committed last, when the process leaves the
// lane.
func (g *breaker) recordDelivered(t lane.Tail) { g.deliveredBefore = t.Counts.Delivered }

// forgetMessage is called when a message is cancelled. The message's key no longer counts in
// streakKeys and awayKeys.
func (g *breaker) forgetMessage(e *lane.Entry) {
	delete(g.streakKeys, e.KeyHash())
	delete(g.awayKeys, e.KeyHash())
}

// forgetFinal is called when a message becomes final. A message that is dead does not show that the
// CMS is away.
func (g *breaker) forgetFinal(e *lane.Entry) {
	delete(g.suspects, e.Seq())
	delete(g.awayKeys, e.KeyHash())
}

// closedUntil returns the time before which no message is sent.
func (g *breaker) closedUntil() time.Time {
	if g.settleUntil.After(g.pausedUntil) {
		return g.settleUntil
	}
	return g.pausedUntil
}

// classifyResult records the result of an attempt, and returns the outcome that counts for the
// message.
func (g *breaker) classifyResult(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if r.Unanswered {
		g.beginSettling(now)
	}

	switch {
	case r.Outcome == weir.OutcomeDelivered,
		// status 0 = Weir could not send the message
		r.Outcome == weir.OutcomeRejected && r.Status != 0:
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

// classifyRetry classifies a result with the outcome retry. Normally the message counts as the
// cause of the failure. After many such failures in a row, the CMS may be the cause: the result
// then counts as a refusal or, if the CMS gave no answer, as unavailable.
func (g *breaker) classifyRetry(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	g.countFailure()
	g.retryStreak++
	g.streakKeys.add(e)

	switch {
	case !g.isSuspected && (g.retryStreak < suspectRetries || len(g.streakKeys) < g.suspectKeys):
		return weir.OutcomeRetry
	case r.Status != 0 && !r.Unanswered:
		return g.classifyRefusal(e, r, now)
	}

	return g.classifyUnavailable(e, r, now)
}

// causeOf returns the cause of a pause that a result makes. If the CMS has asked for the pause, no
// recovery ends it.
func causeOf(cause string, r weir.Result) string {
	if r.RetryAfter > 0 {
		return ""
	}
	return cause
}

// takeRecovery is called after each result. It reports whether a lane that had paused has delivered
// a message.
func (g *breaker) takeRecovery(outcome weir.Outcome) bool {
	if outcome != weir.OutcomeDelivered || !g.hasPaused {
		return false
	}
	g.hasPaused = false
	return true
}

func (g *breaker) countFailure() {
	g.failures++
	if g.failures >= alternateAfter || g.alternateFor > 0 {
		g.alternateFor = alternateVerdicts
	}
}

// beginSettling begins the settle time, because the CMS may still be working on a request.
func (g *breaker) beginSettling(now time.Time) {
	g.settleUntil = now.Add(g.settle)
	g.settleTail = g.settleUntil.Add(maxSkew)
}

// recordVerdict records that the CMS works, because it took or rejected a message.
func (g *breaker) recordVerdict(e *lane.Entry) {
	g.resetStreaks()
	g.pauseCount, g.pausedUntil, g.pauseReason, g.pauseCause = 0, time.Time{}, "", ""
	delete(g.suspects, e.Seq())
}

// resetStreaks counts a verdict, and forgets the failures in a row.
func (g *breaker) resetStreaks() {
	g.verdicts++
	g.isSuspected = false
	g.retryStreak, g.failures, g.probes, g.alternateFor = 0, 0, 0, max(0, g.alternateFor-1)
	g.refusingSince, g.probedBelow, g.nextRoundAt = time.Time{}, 0, time.Time{}
	clear(g.streakKeys)
	clear(g.probedKeys)
	clear(g.awayKeys)
}

// liftPause ends the pause, because an operator has resumed the lane. Each key gets another turn.
func (g *breaker) liftPause() {
	g.pausedUntil, g.nextRoundAt, g.pauseReason, g.pauseCount = time.Time{}, time.Time{}, "", 0
	g.pauseCause = ""
	clear(g.probedKeys)
}

// endPause ends the pause, because another lane has delivered a message. Each key gets another
// turn. If the CMS fails again, the pauses go on to grow.
func (g *breaker) endPause() {
	g.pausedUntil, g.nextRoundAt, g.pauseCause = time.Time{}, time.Time{}, ""
	clear(g.probedKeys)
}

// classifyUnavailable pauses the lane, except in two cases:
//
//   - A verdict came between the message's previous failure and this one, so the message is the
//     cause: the attempt counts.
//   - Since the last verdict, no message of another key has failed in this way, and the CMS asked
//     for no pause. Then this message can be the cause, for example because the CMS redirects only
//     this request. So the result counts as a refusal: the holder goes on with other keys.
func (g *breaker) classifyUnavailable(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if g.hasVerdictSince(e) {
		return weir.OutcomeRetry
	}

	g.awayKeys.add(e)
	if len(g.awayKeys) == 1 && r.RetryAfter == 0 {
		return g.deferMessage(e, r, now, false)
	}

	g.refusingSince, g.probedBelow, g.nextRoundAt = time.Time{}, 0, time.Time{}
	g.probedKeys[e.KeyHash()], g.pauseReason = true, r.Reason
	g.pauseCause, g.isOverload = causeOf(lane.CauseAway, r), r.Status == http.StatusTooManyRequests
	g.beginPause(r.RetryAfter, now, maxDelay)

	return weir.OutcomeUnavailable
}

// classifyRefusal records a refusal. If a verdict came between two failures of this message, the
// message is the cause, and the attempt counts.
func (g *breaker) classifyRefusal(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	between := g.hasVerdictSince(e)
	b := g.suspects[e.Seq()]
	b.isProven = b.isProven || between
	g.suspects[e.Seq()] = b
	return g.deferMessage(e, r, now, b.isProven)
}

// deferMessage lets a message wait for the next round, and the holder goes on with other keys. It
// returns OutcomeRetry, so that the attempt counts, in two cases:
//
//   - isProven: the message is the cause of its failures.
//   - The CMS has taken no message for the time g.patience, and this message has waited for at
//     least that time. The message must become final even if the CMS never takes a message again.
func (g *breaker) deferMessage(e *lane.Entry, r weir.Result, now time.Time,
	isProven bool) weir.Outcome {
	if g.refusingSince.IsZero() || now.Sub(g.refusedAt) > patienceResetAfter {
		g.refusingSince = now
	}

	g.refusedAt = now
	if isProven || now.Sub(clock.Later(g.refusingSince, e.WaitingSince())) >= g.patience {
		return weir.OutcomeRetry
	}

	g.probedKeys[e.KeyHash()], g.pauseReason = true, r.Reason
	g.isOverload = r.Status == http.StatusTooManyRequests
	g.pauseCause = causeOf(lane.CauseRefused(e.Message.Contract), r)
	if r.Outcome == weir.OutcomeUnavailable && !r.Refused {
		g.pauseCause = causeOf(lane.CauseAway, r)
	}

	g.probes++
	if r.RetryAfter > 0 { // Retry-After applies to all messages
		g.pausedUntil, g.probedBelow, g.nextRoundAt = now.Add(limitDelay(0, r.RetryAfter)), 0,
			time.Time{}
	}

	return weir.OutcomeUnavailable
}

// hasProbedEnough reports whether so many messages were refused that the lane has to pause.
func (g *breaker) hasProbedEnough() bool {
	return g.probes >= firstProbes || g.pauseCount > 0 && g.probes >= laterProbes
}

// hasVerdictSince is called when a message has failed. It reports whether a verdict came since the
// previous failure of this message, and records the present failure.
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

// beginPause pauses the lane for the next delay of the backoff; the argument "longest" limits this
// delay. If the CMS asked for a longer pause (Retry-After), the lane pauses for the time that the
// CMS asked for, up to maxDelay.
func (g *breaker) beginPause(asked time.Duration, now time.Time, longest time.Duration) {
	g.pauseCount++
	g.probes = 0
	delay := min(g.backoff.pauseDelay(g.pauseCount, 0), longest)
	if g.planPause != nil && longest == maxDelay && asked == 0 {
		planned := g.planPause(now, delay)
		if planned < delay {
			g.pauseCount-- // the scout paused for less than this step, so the step comes again
		}
		delay = planned
	}

	g.hasPaused = true
	delay = max(delay, limitDelay(0, asked))
	g.pausedUntil = clock.Later(g.pausedUntil, now.Add(delay))
}

// endRound is called when each key had its turn. It reports whether the next round begins now. If
// not, endRound pauses the lane until the next round.
func (g *breaker) endRound(now time.Time) bool {
	if g.probes > 0 {
		g.pauseRound(now)
	}

	if g.nextRoundAt.After(now) {
		g.pausedUntil = clock.Later(g.pausedUntil, g.nextRoundAt)
		return false
	}

	clear(g.probedKeys)
	return true
}

// pauseRound pauses the lane between two rounds. A new message that is refused during the pause
// does not prolong the pause: otherwise new messages could delay the next round without end.
func (g *breaker) pauseRound(now time.Time) {
	if g.probes = 0; !g.nextRoundAt.After(now) {
		g.beginPause(0, now, maxDelay)
		g.nextRoundAt = g.pausedUntil
	}
	g.pausedUntil = clock.Later(g.pausedUntil, g.nextRoundAt)
}

// isResting reports whether each key had its turn, and the next round has not begun.
func (g *breaker) isResting(now time.Time) bool {
	return g.probedBelow > 0 && g.nextRoundAt.After(now)
}

// hadTurn reports whether a message of the log had its turn, and waits for the next round.
func (g *breaker) hadTurn(e *lane.Entry, now time.Time) bool {
	return g.isResting(now) && e.Seq() < g.probedBelow
}

// letUntriedPass ends the pause between two rounds, so that messages that had no turn can be sent.
func (g *breaker) letUntriedPass(now time.Time) {
	if g.isResting(now) && g.pausedUntil.Equal(g.nextRoundAt) {
		g.pausedUntil = time.Time{}
	}
}

// wantsWholeLog reports whether the holder must read the log to its end, to find a message that the
// CMS takes.
func (g *breaker) wantsWholeLog() bool {
	return !g.refusingSince.IsZero() && g.failures >= wholeLogAfter
}

// maxSkew is how far the clocks of two processes may differ. /api/checks warns if the difference is
// maxSkew or more.
const maxSkew = 2 * time.Second

// saveTo writes the state for the next holder into tail. The settle time in tail includes maxSkew,
// so that a holder whose clock is ahead does not begin too early.
func (g *breaker) saveTo(t *lane.Tail) {
	t.PausedUntil = clock.Later(g.pausedUntil, g.nextRoundAt)
	t.PauseReason, t.PauseCount, t.PauseCause = g.pauseReason, int64(g.pauseCount), g.pauseCause
	t.RefusingSince, t.ProbedBelow = g.refusingSince, g.probedBelow
	t.SettleUntil = g.settleTail
}
