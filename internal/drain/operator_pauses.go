package drain

import (
	"time"

	"weir/internal/lane"
)

// maxPausesAge is the time for which a holder may send messages after a read of the pauses has begun. After this time
// the holder must first read the pauses again. The holder reads the pauses each second, so this time is over only after
// a long attempt, or after a slow or failed read.
const maxPausesAge = controlInterval + 500*time.Millisecond

// operatorPauses has the pauses that operators have set for the lane and for keys, as the session last read them.
type operatorPauses struct {
	askedAt   time.Time            // when the last read of pauses began
	laneUntil time.Time            // zero = the lane is not paused
	keyUntil  map[string]time.Time // by hash of the paused key
}

// replaceWith takes over the pauses from the control rows c. The read of c began at askedAt.
func (p *operatorPauses) replaceWith(c lane.Control, askedAt time.Time) {
	*p = operatorPauses{askedAt: askedAt}
	if pause, isPaused := c.LanePause(askedAt); isPaused {
		p.laneUntil = pause.Ends()
	}
	for hash, pause := range c.KeyPausesByHash(askedAt) {
		if p.keyUntil == nil {
			p.keyUntil = map[string]time.Time{}
		}
		p.keyUntil[hash] = pause.Ends()
	}
}

// isOutdated reports whether the pauses have to be read again before a message is sent.
func (p *operatorPauses) isOutdated(now time.Time) bool { return now.Sub(p.askedAt) > maxPausesAge }

func (p *operatorPauses) isKeyPaused(keyHash string, now time.Time) bool {
	return p.keyUntil[keyHash].After(now)
}

// nextAttemptAt returns when the first message of a block may be sent: at NextAt, or at the end of the key's pause if
// the pause ends later.
func (p *operatorPauses) nextAttemptAt(k *keyState) time.Time {
	return laterOf(k.NextAt, p.keyUntil[k.KeyHash])
}
