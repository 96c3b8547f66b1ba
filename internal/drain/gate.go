package drain

import (
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// After this many retries in a row, over this many keys, with no verdict between, it
	// is the CMS that fails and not the messages.
	suspectRetries = 5
	suspectKeys    = 3
	// firstProbes messages that the CMS refuses in a row are sent without a pause; from then on
	// laterProbes, so that both ends of the log have one of each two.
	firstProbes = 16
	laterProbes = 2
	// refusedPause is the longest pause of a lane while a key has not had its turn. The holder
	// stays for that time.
	refusedPause = lingerMax
	// After unevenAfter failures in a row the attempts from the log take turns between its two
	// ends, until evenAfter verdicts have come in a row.
	unevenAfter = 3
	evenAfter   = 5
	// After farAfter failures in a row the log is read to its end for that, as far as memory allows.
	farAfter = 8
	// silence is longer than any pause of the gate's own. If nothing was sent for so long,
	// because the lane was paused or closed, the CMS's patience begins anew.
	silence = 2 * maxDelay
	// patienceDefault is how long the CMS may answer and take nothing until that counts.
	patienceDefault = 24 * time.Hour
)

// gate knows whether the CMS may be sent something now, and whether a failure is the
// message's or the CMS's. It is a state machine without clock or I/O.
//
// A CMS that is away (no connection, 401, 429, 503 …) pauses the lane. One that answers, and
// refuses (403, or 500 to message after message), may mean these messages or all of them: the
// lane goes on with other keys until one is taken, and pauses only for what had its turn.
type gate struct {
	backoff  Backoff
	settle   time.Duration // how long something unanswered may be at work in the CMS
	patience time.Duration // how long the CMS may answer and take nothing, until each refusal counts

	settleUntil time.Time
	settleTail  time.Time // the same for others, whose clocks may differ
	pausedUntil time.Time
	reason      string
	pauses      int // in a row

	streak     int             // retries in a row without a verdict between
	streakKeys map[string]bool // their keys
	verdicts   int             // answers that judged a message
	blamed     map[int64]blame // by message: of those that found the CMS away, or were refused
	avoid      map[string]bool // key hashes probed since the last verdict: others have their turn
	delivered  int64           // of the lane, when this process left it

	failures  int       // attempts in a row without a verdict
	uneven    int       // verdicts in a row until the log is worked off from its beginning alone
	probes    int       // refusals since the last pause
	nextAt    time.Time // when refused messages have their next turn, once all had one
	refusing  time.Time // since when the CMS has answered and taken nothing
	refusedAt time.Time // the last refusal
	probed    int64     // see lane.Tail
}

// blame is what a gate remembers of a message whose failure it did not count.
type blame struct {
	verdicts int  // as many had come then
	proven   bool // the CMS took another message between two refusals of this one
}

// maxBlamed bounds what a gate remembers of messages; past it, it begins to learn anew.
const maxBlamed = 2 * windowMax

// newGate makes the gate of one lane in one process. It outlives the process's runs: which
// keys had their turn, and which message failed where another passed, is learnt over pauses.
func newGate(b Backoff, settle, patience time.Duration) *gate {
	if patience == 0 {
		patience = patienceDefault
	}
	return &gate{backoff: b, settle: settle, patience: patience, streakKeys: map[string]bool{},
		blamed: map[int64]blame{}, avoid: map[string]bool{}}
}

// adopt takes over what the last holder, here or elsewhere, wrote into tail. What this process
// sent without an answer stays: where it had lost the lane, tail does not have it. The gate
// ignores a moment in tail that is further ahead than settings and the allowed difference of
// clocks permit. If the CMS refused messages of another holder, it is as if it had refused this
// one's: a lane that moves often would otherwise have only its first messages tried, again and again.
func (g *gate) adopt(t lane.Tail, now time.Time) {
	settles := limitMoment(t.SettleUntil, now.Add(g.settle+2*maxSkew))
	g.settleUntil, g.settleTail = later(g.settleUntil, settles), later(g.settleTail, settles)
	g.pausedUntil, g.reason, g.pauses = limitMoment(t.PausedUntil, now.Add(maxDelay)), t.PauseReason, int(t.PauseCount)
	if t.Counts.Delivered > g.delivered {
		g.judged() // while another had the lane: what failed here before is old
	}
	if !t.RefusingSince.IsZero() && g.refusing.IsZero() {
		g.failures, g.uneven = max(g.failures, farAfter), evenAfter
	}
	g.refusing, g.refusedAt, g.probed = t.RefusingSince, later(g.refusedAt, t.LastErrorAt), t.ProbedBelow
}

// leave notes how the process leaves the lane.
func (g *gate) leave(t lane.Tail) { g.delivered = t.Counts.Delivered }

// withdrawn notes that a message is not tried any more: it may have been all that failed of
// its key, and speaks for the CMS's failing no longer.
func (g *gate) withdrawn(e *lane.Entry) { delete(g.streakKeys, e.Message.Key) }

// opensAt is the moment before which nothing is sent.
func (g *gate) opensAt() time.Time {
	if g.settleUntil.After(g.pausedUntil) {
		return g.settleUntil
	}
	return g.pausedUntil
}

// judge takes in a result and says what it is to the message.
func (g *gate) judge(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if r.Unanswered {
		g.unanswered(now)
	}
	switch {
	case r.Outcome == weir.OutcomeDelivered, r.Outcome == weir.OutcomeRejected && r.Status != 0: // without a status Weir could not send it
		g.verdict(e)
	case r.Outcome == weir.OutcomeRetry:
		return g.retry(e, r, now)
	case r.Outcome == weir.OutcomeUnavailable:
		g.failed()
		if r.Refused {
			return g.refused(e, r, now)
		}
		return g.unavailable(e, r, now)
	}
	return r.Outcome
}

// retry counts a failure, unless so many attempts in a row failed that the CMS is the cause.
func (g *gate) retry(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	g.failed()
	g.streak++
	g.streakKeys[e.Message.Key] = true
	switch {
	case g.streak < suspectRetries || len(g.streakKeys) < suspectKeys:
		return weir.OutcomeRetry
	case r.Status != 0 && !r.Unanswered:
		return g.refused(e, r, now)
	}
	return g.unavailable(e, r, now)
}

// failed notes an attempt without a verdict.
func (g *gate) failed() {
	g.failures++
	if g.failures >= unevenAfter || g.uneven > 0 {
		g.uneven = evenAfter
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// limitMoment returns a moment, or the latest one if it is later than that.
func limitMoment(at, latest time.Time) time.Time {
	if at.After(latest) {
		return latest
	}
	return at
}

// isFarAhead reports whether a retry's moment is further ahead than any setting allows: then the
// clock of the holder that wrote it was wrong.
func isFarAhead(at, now time.Time) bool { return at.After(now.Add(maxDelay + 2*maxSkew)) }

// unanswered notes that something may be at work in the CMS from now on.
func (g *gate) unanswered(now time.Time) {
	g.settleUntil = now.Add(g.settle)
	g.settleTail = g.settleUntil.Add(maxSkew)
}

// verdict notes that the CMS works: it has judged a message.
func (g *gate) verdict(e *lane.Entry) {
	g.judged()
	g.pauses, g.pausedUntil, g.reason = 0, time.Time{}, ""
	delete(g.blamed, e.Seq())
}

// judged begins to learn anew which failures belong together.
func (g *gate) judged() {
	g.verdicts++
	g.streak, g.failures, g.probes, g.uneven = 0, 0, 0, max(0, g.uneven-1)
	g.refusing, g.probed, g.nextAt = time.Time{}, 0, time.Time{}
	clear(g.streakKeys)
	clear(g.avoid)
}

// resume lets the lane probe at once: somebody says that the CMS is there again.
func (g *gate) resume() {
	g.pausedUntil, g.nextAt, g.reason, g.pauses = time.Time{}, time.Time{}, "", 0
	clear(g.avoid)
}

// unavailable pauses the lane, unless the CMS has judged another message between two
// tries of this one: then it is the message after all.
func (g *gate) unavailable(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if g.between(e) {
		return weir.OutcomeRetry
	}
	g.refusing, g.probed, g.nextAt = time.Time{}, 0, time.Time{}
	g.avoid[e.KeyHash()], g.reason = true, r.Reason
	g.pause(r.RetryAfter, now, maxDelay)
	return weir.OutcomeUnavailable
}

// refused takes in a refusal. It counts the attempt if the CMS has taken another message between
// two refusals of this one, or none for longer than its patience: a message that stands alone
// must come to its end, too. Else the lane goes on with the other keys, and pauses after some
// refusals.
func (g *gate) refused(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	if g.refusing.IsZero() || now.Sub(g.refusedAt) > silence {
		g.refusing = now
	}
	g.refusedAt = now
	between := g.between(e)
	b := g.blamed[e.Seq()]
	b.proven = b.proven || between
	g.blamed[e.Seq()] = b
	if b.proven || now.Sub(later(g.refusing, e.WaitingSince())) >= g.patience {
		return weir.OutcomeRetry
	}
	g.avoid[e.KeyHash()], g.reason = true, r.Reason
	g.probes++
	if r.RetryAfter > 0 { // it applies to all messages
		g.pausedUntil, g.probed = now.Add(clamp(0, r.RetryAfter)), 0
	}
	return weir.OutcomeUnavailable
}

// hasProbedEnough reports whether so many messages were refused that the lane has to pause.
func (g *gate) hasProbedEnough() bool {
	return g.probes >= firstProbes || g.pauses > 0 && g.probes >= laterProbes
}

// between reports whether the CMS has judged another message since this one failed last.
func (g *gate) between(e *lane.Entry) bool {
	if len(g.blamed) > maxBlamed {
		clear(g.blamed)
	}
	b, before := g.blamed[e.Seq()]
	since := before && g.verdicts > b.verdicts
	b.verdicts = g.verdicts
	g.blamed[e.Seq()] = b
	return since
}

// pause pauses the lane, for no longer than most unless the CMS asks for it.
func (g *gate) pause(asked time.Duration, now time.Time, most time.Duration) {
	g.pauses++
	g.probes = 0
	g.pausedUntil = later(g.pausedUntil, now.Add(max(min(g.backoff.pauseDelay(g.pauses, 0), most), clamp(0, asked))))
}

// endRound begins a new round of probing once every key had its turn, and reports whether it
// begins now: if messages were refused since the last pause, another pause comes first.
func (g *gate) endRound(now time.Time) bool {
	if g.probes > 0 {
		g.pause(0, now, maxDelay)
		g.nextAt = g.pausedUntil
	}
	if g.nextAt.After(now) {
		g.pausedUntil = later(g.pausedUntil, g.nextAt)
		return false
	}
	clear(g.avoid)
	return true
}

// looksFar reports whether to read the log to its end, for a message that the CMS may take.
func (g *gate) looksFar() bool { return !g.refusing.IsZero() && g.failures >= farAfter }

// maxSkew is how far the clocks of two processes may differ; health warns from there on.
const maxSkew = 2 * time.Second

// write puts what must outlive this holder into tail. The next one may have another clock,
// and must not take up the lane too early for it.
func (g *gate) write(t *lane.Tail) {
	t.PausedUntil, t.PauseReason, t.PauseCount = g.pausedUntil, g.reason, int64(g.pauses)
	t.RefusingSince, t.ProbedBelow = g.refusing, g.probed
	t.SettleUntil = g.settleTail
}
