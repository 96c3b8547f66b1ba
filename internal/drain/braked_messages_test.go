package drain

import (
	"testing"
	"time"

	"weir/internal/lane"
)

// When a brake is opened, tail shows the refused messages as due together with their blocks. If it
// showed them later, and the holder died meanwhile, no process would look at the lane until then.
func TestBrakedMessages_ReleaseMakesTheLaneDue(t *testing.T) {
	runWithParts(t, func(t *testing.T, p *sessionParts) {
		p.appendMessages("a", "b")
		for _, e := range p.readLog() {
			p.holdMessages(time.Now().Add(time.Hour), e).waitForBrake("article", "f",
				time.Now().Add(time.Hour))
		}

		p.journal.saveProgress = func(ch *lane.Change) { // as session.saveProgress
			var at time.Time
			p.keys.eachFirst(func(k *keyState) { at = earlierOf(at, k.NextAt) })
			ch.UpdateTail(func(t *lane.Tail) { t.NextDueAt = at })
		}

		p.journal.record(&lane.Change{}, true)
		p.commitAll()
		m := &brakedMessages{laneScope: p.laneScope, brakes: newBrakes(5, 0, Backoff{}),
			keys: p.keys, journal: p.journal}

		m.brakes.generation++ // the CMS has taken a message in another lane
		m.releaseOpened()
		p.commitAll()
		if at := p.readControl().Tail.NextDueAt; at.After(time.Now()) {
			t.Errorf("got a lane that is due in %s, want it due now", time.Until(at))
		}
	})
}
