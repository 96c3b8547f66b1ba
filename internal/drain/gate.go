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
)

// gate knows whether the CMS may be sent something now, and whether a failure is the
// message's or the CMS's. It is a state machine without clock or I/O.
type gate struct {
	backoff Backoff
	settle  time.Duration // how long something unanswered may be at work in the CMS

	settleUntil time.Time
	settleTail  time.Time // the same for others, whose clocks may differ
	pausedUntil time.Time
	reason      string
	pauses      int // in a row

	streak     int             // retries in a row without a verdict between
	streakKeys map[string]bool // their keys
	verdicts   int             // answers that judged a message
	blamed     map[int64]int   // by message: verdicts when it last found the CMS unavailable
	avoid      map[string]bool // key hashes probed since the last verdict: others have their turn
	delivered  int64           // of the lane, when this process left it
}

// maxBlamed bounds what a gate remembers of messages; past it, it begins to learn anew.
const maxBlamed = 1000

// newGate makes the gate of one lane in one process. It outlives the process's runs: which
// keys had their turn, and which message failed where another passed, is learnt over pauses.
func newGate(b Backoff, settle time.Duration) *gate {
	return &gate{backoff: b, settle: settle, streakKeys: map[string]bool{}, blamed: map[int64]int{}, avoid: map[string]bool{}}
}

// adopt takes over what the last holder, here or elsewhere, wrote into tail. What this
// process sent without an answer stays: where it had lost the lane, tail does not have it. No
// moment in tail is believed that is further ahead than the holder that wrote it can have meant,
// with a clock that is as far ahead as clocks may be.
func (g *gate) adopt(t lane.Tail, now time.Time) {
	settles := atMost(t.SettleUntil, now.Add(g.settle+2*maxSkew))
	g.settleUntil, g.settleTail = later(g.settleUntil, settles), later(g.settleTail, settles)
	g.pausedUntil, g.reason, g.pauses = atMost(t.PausedUntil, now.Add(maxDelay)), t.PauseReason, int(t.Pauses)
	if t.Counts.Delivered > g.delivered {
		g.judged() // while another had the lane: what failed here before is old
	}
	if len(g.blamed) > maxBlamed {
		clear(g.blamed)
	}
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
	switch r.Outcome {
	case weir.OutcomeDelivered:
		g.verdict(e)
	case weir.OutcomeRejected:
		if r.Status != 0 { // else it was us who could not send it
			g.verdict(e)
		}
	case weir.OutcomeRetry:
		g.streak++
		g.streakKeys[e.Message.Key] = true
		if g.streak >= suspectRetries && len(g.streakKeys) >= suspectKeys {
			return g.unavailable(e, r, now)
		}
	case weir.OutcomeUnavailable:
		return g.unavailable(e, r, now)
	}
	return r.Outcome
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// atMost is a moment, or the latest that it may be.
func atMost(at, latest time.Time) time.Time {
	if at.After(latest) {
		return latest
	}
	return at
}

// farAhead reports whether a moment for which a retry waits is further ahead than a holder can
// have meant: its clock was wrong.
func farAhead(at, now time.Time) bool { return at.After(now.Add(maxDelay + 2*maxSkew)) }

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
	g.streak = 0
	clear(g.streakKeys)
	clear(g.avoid)
}

// resume lets the lane probe at once: somebody says that the CMS is there again.
func (g *gate) resume() { g.pausedUntil, g.reason, g.pauses = time.Time{}, "", 0 }

// unavailable pauses the lane, unless the CMS has judged another message between two
// tries of this one: then it is the message after all.
func (g *gate) unavailable(e *lane.Entry, r weir.Result, now time.Time) weir.Outcome {
	seen, blamedBefore := g.blamed[e.Seq()]
	if blamedBefore && g.verdicts > seen {
		g.blamed[e.Seq()] = g.verdicts
		return weir.OutcomeRetry
	}
	g.blamed[e.Seq()] = g.verdicts
	g.avoid[e.KeyHash()] = true
	g.pauses++
	g.pausedUntil = now.Add(g.backoff.pauseDelay(g.pauses, r.RetryAfter))
	g.reason = r.Reason
	return weir.OutcomeUnavailable
}

// maxSkew is how far the clocks of two processes may differ; health warns from there on.
const maxSkew = 2 * time.Second

// write puts what must outlive this holder into tail. The next one may have another clock,
// and must not take up the lane too early for it.
func (g *gate) write(t *lane.Tail) {
	t.PausedUntil, t.PauseReason, t.Pauses = g.pausedUntil, g.reason, int64(g.pauses)
	t.SettleUntil = g.settleTail
}
