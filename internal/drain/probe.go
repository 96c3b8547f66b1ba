package drain

import (
	"context"
	"slices"
	"time"

	"weir/internal/lane"
)

// Probing: while the CMS refuses one message after the other, the holder looks for one that it
// takes. Each key has a turn, from both ends of the log alternately. As long as a key has not had
// its turn, pauses are short and the holder stays. Then they grow, and a message that is filed or
// falls due meanwhile has its turn at once (lane.Control.Untried).

// beginRound gives all keys another turn once each key in reach had one, and reports whether
// there is a message to choose again. Messages further behind in the log go first.
func (r *run) beginRound(ctx context.Context) (bool, error) {
	if len(r.gate.avoid) == 0 || r.committer.load() > 0 || r.releases.isUnderWay() {
		return false, nil
	}
	if !r.window.isWhole() {
		return true, r.lookFar(ctx)
	}
	if r.gate.endRound(r.Now()) {
		return true, nil
	}
	r.allProbed()
	return false, nil
}

// pauseProbing pauses the lane if enough messages were refused since the last pause.
func (r *run) pauseProbing() {
	switch {
	case !r.gate.hasProbedEnough():
	case r.untried():
		r.gate.pause(0, r.Now(), refusedPause)
	default:
		r.gate.pause(0, r.Now(), maxDelay)
		r.allProbed()
	}
}

// untried reports whether a key that has not had its turn may be in the log.
func (r *run) untried() bool {
	return !r.window.isWhole() || slices.ContainsFunc(r.window.entries, func(e *lane.Entry) bool {
		return e.Seq() >= r.gate.probed && !r.gate.avoid[e.KeyHash()]
	})
}

// allProbed notes that no message in the log waits for its first turn. Due messages that had one
// wait for the end of the pause, in the same order, so that tail calls for a holder only when
// another message falls due.
func (r *run) allProbed() {
	r.gate.probed = r.window.nextRead
	until := r.gate.pausedUntil.Truncate(time.Microsecond)
	for _, b := range r.blocks.overdue(r.Now()) {
		if !r.gate.avoid[b.KeyHash] || r.isShut(b.KeyHash) {
			continue
		}
		until = until.Add(time.Microsecond)
		r.deferred[b.ID], b.NextAt = b.NextAt, until
		ch := &lane.Change{}
		ch.SaveBlock(*b)
		r.committer.add(ch, false)
	}
	ch := &lane.Change{}
	r.position(ch)
	r.committer.add(ch, true)
}

// bringForward ends the wait for the next round, because the CMS has taken a message.
func (r *run) bringForward() {
	for id, next := range r.deferred {
		if b := r.blocks[id]; b != nil && next.Before(b.NextAt) {
			b.NextAt = next
		}
	}
	clear(r.deferred)
}
