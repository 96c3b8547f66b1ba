package audit

import (
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"weir/internal/weir"
)

// pacedFunctions are the functions of which programs of upstreams have keys. Each accepted change
// is an entry that is kept for a year, so a program in a loop would fill the log. An operator's key
// is not paced: an incident can need many changes.
var pacedFunctions = []string{"cancel", "move", "schedules"}

const (
	// burst is the number of changes that a key can make at once.
	burst = 1000
	// perSecond is the number of changes a second that a key can make in the long run: 172,800
	// entries a day.
	perSecond = 2
	// maxPaced limits the keys in memory.
	maxPaced = 1000
)

// Pace limits the changes that one function key makes with a function of pacedFunctions, in this
// process. It counts only changes that have an entry. It is safe for concurrent use. A nil Pace has
// no limit.
type Pace struct {
	mu   sync.Mutex
	keys map[string]*rate.Limiter // by fingerprint
}

// NewPace returns a Pace for all functions of a process.
func NewPace() *Pace { return &Pace{keys: map[string]*rate.Limiter{}} }

// check returns an error if a key has used up its changes.
func (p *Pace) check(function, keyID string, now time.Time) error {
	if p == nil || !slices.Contains(pacedFunctions, function) {
		return nil
	}

	left := p.limiterOf(keyID, now).TokensAt(now)
	if left >= 1 {
		return nil
	}

	return &weir.Error{Kind: weir.Limited, Op: "audit",
		RetryAfter: time.Duration(math.Ceil((1-left)/perSecond)) * time.Second,
		Message:    "this key makes too many changes; wait, or make one bulk change in place of many single ones"}
}

// count counts a change that has an entry.
func (p *Pace) count(function, keyID string, now time.Time) {
	if p != nil && slices.Contains(pacedFunctions, function) {
		// changes that ran at the same time can use more than is left
		p.limiterOf(keyID, now).ReserveN(now, 1)
	}
}

// limiterOf returns the limiter of a key. If too many keys are known, limiterOf forgets those that
// have made no change for a while.
func (p *Pace) limiterOf(keyID string, now time.Time) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.keys[keyID]; l != nil {
		return l
	}

	if len(p.keys) >= maxPaced {
		for id, l := range p.keys {
			if l.TokensAt(now) >= burst {
				delete(p.keys, id)
			}
		}
	}

	if len(p.keys) >= maxPaced {
		clear(p.keys) // the host lets only known keys pass, so this is not expected
	}

	l := rate.NewLimiter(perSecond, burst)
	p.keys[keyID] = l

	return l
}
