package drain

import (
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// While the CMS refuses one message after the other, the holder probes: it looks for a message that the CMS takes. A
// key has its turn when a message of it is sent. The holder takes keys from both ends of the log alternately. As long
// as some key has not had its turn, pauses are short and the holder stays. When each key had its turn, the round is
// over, and a longer pause comes before the next round. A message that is filed or becomes due in that pause has its
// turn at once (lane.Control.HasUntried). All other messages still wait for the end of the pause (breaker.isResting).

// prober decides how a session goes on after refusals.
type prober struct {
	laneScope
	journal   *journal
	readAhead *readAhead
	keys      *keyStates
	breaker   *breaker
	due       interface{ isShut(keyHash string) bool }
	deferred  map[string]time.Time // NextAt before deferProbed changed it, by id of the block
}

// classifyResult returns the outcome of an attempt for its message. After enough refusals it pauses the lane. After a
// verdict it ends the wait for the next round.
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

// beginRound is called after each key had its turn. It reports whether the next round begins now. Otherwise the lane
// pauses first.
func (p *prober) beginRound() bool {
	if p.breaker.endRound(p.now()) {
		return true
	}
	p.deferProbed()
	return false
}

// pauseIfProbed pauses the lane if enough messages were refused since the last pause. The pause is short as long as
// there may be a key that has not had its turn.
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

// deferProbed records that no message in the log waits for its turn in this round. It makes held messages wait for the
// end of the pause, in the same order, if their time has come and their keys had their turn. So tail shows no work
// before the end of the pause, unless another message comes or becomes due.
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

// endDeferral ends the wait for the next round, because the CMS has judged a message.
func (p *prober) endDeferral() {
	for id, next := range p.deferred {
		if k := p.keys.byID[id]; k != nil && next.Before(k.NextAt) {
			k.NextAt = next
		}
	}
	clear(p.deferred)
}
