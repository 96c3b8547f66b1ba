package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// While the CMS refuses one message after the other, the holder probes: it looks for a message that the CMS takes. Each
// key has a turn, from both ends of the log alternately. As long as a key has not had its turn, pauses are short and
// the holder stays. Then the pauses grow. A message that is filed or becomes due in a long pause has its turn at once
// (lane.Control.HasUntried). The others still wait for the end of the pause (breaker.isResting).

// prober decides how a session goes on after refusals.
type prober struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	breaker   *breaker
	due       interface{ isShut(keyHash string) bool }
	deferred  map[string]time.Time // the due times of blocks that wait for the next round
}

// classifyResult returns the outcome of an attempt, and pauses or resumes the probing.
func (p *prober) classifyResult(c *candidate, result weir.Result) weir.Outcome {
	if c.block != nil {
		delete(p.deferred, c.block.ID)
		c.block.IsUntried = false // stored with the block's next change; after a crash the message has another turn
	}
	verdicts := p.breaker.verdicts
	outcome := p.breaker.classifyResult(c.entry, result, p.now())
	if p.breaker.verdicts > verdicts {
		p.endDeferral()
	}
	if outcome == weir.OutcomeUnavailable {
		p.pauseIfProbed()
	}
	return outcome
}

// beginRound gives all keys another turn after each key in reach had one, and reports whether a
// message may be chosen again. Else the lane pauses first.
func (p *prober) beginRound() bool {
	if p.breaker.endRound(p.now()) {
		return true
	}
	p.deferProbed()
	return false
}

// pauseIfProbed pauses the lane if enough messages were refused since the last pause.
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

// hasUntriedKey reports whether a key that has not had its turn may be in the log.
func (p *prober) hasUntriedKey() bool {
	return !p.readAhead.isComplete() || slices.ContainsFunc(p.readAhead.entries, func(e *lane.Entry) bool {
		return e.Seq() >= p.breaker.probedBelow && !p.breaker.probedKeys[e.KeyHash()]
	})
}

// deferProbed records that no message in the log waits for its first turn. Due messages that had a turn wait for the
// end of the pause, in the same order. So by tail the lane needs a holder only when another message becomes due.
func (p *prober) deferProbed() {
	p.breaker.probedBelow = p.readAhead.nextRead
	until := p.breaker.pausedUntil.Truncate(time.Microsecond)
	for _, k := range p.keys.listOverdue() {
		if !p.breaker.probedKeys[k.KeyHash] || p.due.isShut(k.KeyHash) {
			continue
		}
		until = until.Add(time.Microsecond)
		p.deferred[k.ID], k.NextAt = k.NextAt, until
		ch := &lane.Change{}
		ch.SaveBlock(k.KeyBlock)
		p.journal.addChange(ch, false)
	}
	p.journal.record(&lane.Change{}, true)
}

// endDeferral ends the wait for the next round, because the CMS has taken a message.
func (p *prober) endDeferral() {
	for id, next := range p.deferred {
		if k := p.keys.byID[id]; k != nil && next.Before(k.NextAt) {
			k.NextAt = next
		}
	}
	clear(p.deferred)
}
