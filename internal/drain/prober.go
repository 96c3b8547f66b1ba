package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// While the CMS refuses messages, the holder probes: it sends messages of other keys, to find a
// message that the CMS takes. breaker.go explains the words verdict, refusal, round and turn.
//
//   - The holder takes messages from both ends of the log alternately.
//   - While the log has a key that had no turn, pauses are short, and the holder keeps the lane.
//   - When each key had its turn, the lane pauses for longer. Then the next round begins.
//   - In the longer pause, the holder sends only messages of keys that had no turn, for example new
//     messages (lane.Control.HasUntried).

// prober decides how a session continues after refusals.
type prober struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	breaker   *breaker
	due       interface{ isShut(keyHash string) bool }
	retryFor  func(*lane.Entry) time.Duration
	braked    *brakedMessages
	recovered func(lane.Recovery)  // see Drainer.announceRecovery
	deferred  map[string]time.Time // by block id: the NextAt that deferProbed replaced
}

// classifyResult returns the outcome that counts for the candidate. After enough refusals it pauses
// the lane. After a verdict it calls endDeferral. A result that shows nothing about the CMS has no
// effect on other messages.
func (p *prober) classifyResult(c *candidate, result weir.Result) weir.Outcome {
	if result.Unsent || result.IsOwnFault {
		return result.Outcome
	}

	if result.Outcome == weir.OutcomeRejected &&
		p.braked.judgeRejection(c, result) == weir.OutcomeUnavailable {
		return weir.OutcomeUnavailable
	}

	if c.block != nil {
		delete(p.deferred, c.block.ID)
		c.block.recordTurn()
	}

	p.breaker.suspectKeys = suspectKeys
	if result.Outcome == weir.OutcomeRetry && p.retryFor(c.entry) > 0 {
		p.breaker.suspectKeys = p.countSuspectKeys(c)
	}

	verdicts := p.breaker.verdicts
	outcome := p.breaker.classifyResult(c.entry, result, p.now())
	if p.breaker.verdicts > verdicts {
		p.endDeferral()
	}

	if outcome == weir.OutcomeDelivered {
		p.braked.openContract(c.entry.Message.Contract)
	}

	if p.breaker.takeRecovery(outcome) {
		p.recovered(lane.Recovery{Contract: c.entry.Message.Contract, At: result.StartedAt})
	}

	if outcome == weir.OutcomeUnavailable {
		p.pauseIfProbed()
	}

	return outcome
}

// countSuspectKeys returns how many keys must fail until the CMS is the cause: suspectKeys or, in a
// quiet lane with fewer waiting keys, all of them. It returns at least two, because the failures of
// one key alone do not show whether the message is the cause.
func (p *prober) countSuspectKeys(c *candidate) int {
	if !p.readAhead.isComplete() {
		return suspectKeys
	}

	waiting := map[string]bool{c.entry.KeyHash(): true}
	for _, k := range p.keys.byID {
		if k.MissingContract == "" {
			waiting[k.KeyHash] = true
		}
	}

	for _, e := range p.readAhead.entries {
		if len(waiting) >= suspectKeys {
			break
		}
		waiting[e.KeyHash()] = true
	}

	return max(2, min(len(waiting), suspectKeys))
}

// beginRound is called when each key had its turn. It either begins the next round or pauses the
// lane, and reports whether a round has begun.
func (p *prober) beginRound() bool {
	if p.breaker.endRound(p.now()) {
		return true
	}
	p.deferProbed()
	return false
}

// pauseIfProbed pauses the lane after enough refusals. The pause is short if the log can still have
// a key that had no turn.
func (p *prober) pauseIfProbed() {
	switch {
	case !p.breaker.hasProbedEnough():
	case p.hasUntriedKey():
		p.breaker.beginPause(0, p.now(), refusedPause)
	default:
		p.breaker.pauseRound(p.now())
		p.deferProbed()
	}
}

// hasUntriedKey reports whether the log can still have a key that had no turn in this round.
func (p *prober) hasUntriedKey() bool {
	return !p.readAhead.isComplete() ||
		slices.ContainsFunc(p.readAhead.entries, func(e *lane.Entry) bool {
			return e.Seq() >= p.breaker.probedBelow && !p.breaker.probedKeys[e.KeyHash()]
		})
}

// deferProbed records that all keys of the log had their turn. It also makes each overdue block
// whose key had its turn wait for the end of the pause. So tail does not show these blocks as work
// during the pause. The blocks keep their order.
func (p *prober) deferProbed() {
	p.breaker.probedBelow = p.readAhead.nextRead
	until := p.breaker.pausedUntil.Truncate(time.Microsecond)
	for _, k := range p.keys.listOverdue() {
		if !p.breaker.probedKeys[k.KeyHash] || p.due.isShut(k.KeyHash) {
			continue
		}

		until = until.Add(time.Microsecond)
		p.deferred[k.ID] = k.NextAt
		k.waitUntil(until)
		ch := &lane.Change{}
		ch.SaveBlock(k.KeyBlock)
		p.journal.addChange(ch, false)
	}

	p.journal.record(&lane.Change{}, true)
}

// endDeferral gives each block in p.deferred the NextAt that deferProbed replaced. A block that has
// an earlier NextAt by now keeps the earlier one.
func (p *prober) endDeferral() {
	for id, next := range p.deferred {
		if k := p.keys.byID[id]; k != nil && next.Before(k.NextAt) {
			k.waitUntil(next)
		}
	}
	clear(p.deferred)
}

// maxDelay is the longest wait of a message or a lane, even if the CMS asks for a longer one. Only
// a wait that is set in Backoff.Steps can be longer.
const maxDelay = time.Hour

// Backoff computes the waits after failures in a row. With a Min of 1s and a Max of 5m the longest
// wait after n failures is:
//
//	n        1   2   3   4   5    6    7     8     9     10
//	longest  1s  2s  4s  8s  16s  32s  1m4s  2m8s  4m16s 5m
//
// If Steps is set, it replaces Min and Max: the n-th step is the longest wait after n failures, and
// the last step repeats. The wait of a message then has no jitter, because the operator chose the
// time. Pauses of a lane still have jitter.
type Backoff struct {
	Min, Max time.Duration
	Steps    []time.Duration
	Rand     func() float64 // returns 0 to 1; New sets it
}

// longestDelay returns the longest wait after n failures in a row. n is at least 1.
func (b Backoff) longestDelay(n int) time.Duration {
	if len(b.Steps) > 0 {
		return b.Steps[min(n, len(b.Steps))-1]
	}

	d := b.Min
	for range n - 1 {
		if d *= 2; d >= b.Max {
			return b.Max
		}
	}

	return min(d, b.Max)
}

// retryDelay returns the wait of a message after n failures. Without Steps the wait is random, from
// 0 to longestDelay, so that messages that failed together are not retried together. The CMS can
// ask for a longer wait, up to maxDelay.
func (b Backoff) retryDelay(n int, asked time.Duration) time.Duration {
	if len(b.Steps) > 0 {
		return max(b.longestDelay(n), min(asked, maxDelay))
	}
	return limitDelay(time.Duration(b.Rand()*float64(b.longestDelay(n))), asked)
}

// pauseDelay returns the length of a lane's n-th pause in a row: a random time from half of
// longestDelay to longestDelay. If asked is longer, pauseDelay returns asked. The result is at most
// maxDelay.
func (b Backoff) pauseDelay(n int, asked time.Duration) time.Duration {
	c := float64(b.longestDelay(n))
	return limitDelay(time.Duration(c/2+b.Rand()*c/2), asked)
}

// isFarAhead reports whether the stored time of a retry is further in the future than any backoff
// allows. The holder that wrote such a time had a wrong clock.
func (b Backoff) isFarAhead(at, now time.Time) bool {
	longest := maxDelay
	for _, step := range b.Steps {
		longest = max(longest, step)
	}
	return at.After(now.Add(longest + 2*maxSkew))
}

// limitDelay returns the longer of two waits, at most maxDelay.
func limitDelay(d, asked time.Duration) time.Duration {
	return min(max(d, asked), maxDelay)
}
