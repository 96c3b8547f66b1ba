package drain

import (
	"sync"
	"time"
)

// spacer spaces the attempts of one process over all its lanes (delivery.rate): one each
// interval and no bursts, so that no second has more of them than were asked for. The zero
// value lets all pass. Safe for concurrent use.
type spacer struct {
	interval time.Duration

	mu     sync.Mutex
	nextAt time.Time // nothing goes before
}

// untilNext is the time until something may go; it takes nothing.
func (p *spacer) untilNext(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nextAt.Sub(now)
}

// reserveNext takes the turn, false when another lane was faster. The next one is an interval from
// now, not from when this one might have gone: the rate is never exceeded.
func (p *spacer) reserveNext(now time.Time) bool {
	if p.interval == 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nextAt.After(now) {
		return false
	}
	p.nextAt = now.Add(p.interval)
	return true
}

// adoptNext takes over from a former holder what it left; a later moment of our own stays.
func (p *spacer) adoptNext(next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interval > 0 && next.After(p.nextAt) {
		p.nextAt = next
	}
}

// nextAllowedAt is the moment before which nothing goes.
func (p *spacer) nextAllowedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nextAt
}
