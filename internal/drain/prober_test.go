package drain

import (
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// newTestProber returns a prober and a selector that share their parts.
func newTestProber(logKeys ...string) (*prober, *selector) {
	s, due := newTestSelector(logKeys...)
	s.readAhead.isAtEnd = true
	return &prober{laneScope: s.laneScope, journal: s.journal, readAhead: s.readAhead, keys: s.keys,
		retryFor: func(*lane.Entry) time.Duration { return 0 }, recovered: func(lane.Recovery) {},
		braked: &brakedMessages{brakes: newBrakes(0, 0, Backoff{}), keys: s.keys,
			laneScope: s.laneScope},
		breaker: s.breaker, due: due, deferred: map[string]time.Time{}}, s
}

// If the CMS has refused a key, the overdue block of the key waits for the end of the pause. Such
// blocks keep their order. After the CMS has taken a message, the blocks are due again.
func TestProber_DefersProbedKeysUntilAVerdict(t *testing.T) {
	t.Parallel()
	p, s := newTestProber()
	first := s.addBlock(newLogEntry(1, "a"), noon.Add(-2*time.Second))
	second := s.addBlock(newLogEntry(2, "b"), noon.Add(-time.Second))
	untried := s.addBlock(newLogEntry(3, "c"), noon)
	for _, k := range []*keyState{first, second} {
		p.breaker.probedKeys[k.KeyHash] = true
	}

	p.breaker.pausedUntil = noon.Add(time.Minute)
	p.deferProbed()

	if !first.NextAt.After(p.breaker.pausedUntil) || !second.NextAt.After(first.NextAt) {
		t.Errorf("probed keys go at %v and %v, want both after %v, in this order",
			first.NextAt, second.NextAt, p.breaker.pausedUntil)
	}

	if !untried.NextAt.Equal(noon) {
		t.Errorf("a key that had no turn goes at %v, want %v", untried.NextAt, noon)
	}

	c := &candidate{entry: untried.first, block: untried}
	verdict := p.classifyResult(c, weir.Result{Outcome: weir.OutcomeDelivered})
	if verdict != weir.OutcomeDelivered || first.NextAt.After(noon) || second.NextAt.After(noon) {
		t.Errorf("after %s the others go at %v and %v, want them due as before", verdict,
			first.NextAt, second.NextAt)
	}
}

// Pauses are short while the log has a key that was not tried.
func TestProber_PausesShortlyWhileAKeyIsUntried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		untried bool
		longest time.Duration
	}{
		"OneUntried": {true, refusedPause},
		"AllProbed":  {false, maxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newTestProber("a")
			p.breaker.probes, p.breaker.pauseCount = firstProbes, 10
			p.breaker.probedKeys[(&lane.Store{}).KeyHash("a")] = !c.untried
			p.pauseIfProbed()
			wait := p.breaker.pausedUntil.Sub(noon)
			if wait <= 0 || wait > c.longest || !c.untried && wait <= refusedPause {
				t.Errorf("got a pause of %v, want at most %v, and more than %v if all had their turn",
					wait, c.longest, refusedPause)
			}
		})
	}
}
