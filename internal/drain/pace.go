package drain

import (
	"sync"
	"time"
)

// pace spaces the attempts of one process over all its lanes (delivery.rate): one each
// interval and no bursts, so that no second has more of them than were asked for. The zero
// value lets all pass. Safe for concurrent use.
type pace struct {
	interval time.Duration

	mu   sync.Mutex
	next time.Time // nothing goes before
}

// wait is the time until something may go; it takes nothing.
func (p *pace) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next.Sub(now)
}

// take takes the turn, false when another lane was faster. The next one is an interval from
// now, not from when this one might have gone: the rate is never exceeded.
func (p *pace) take(now time.Time) bool {
	if p.interval == 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.After(now) {
		return false
	}
	p.next = now.Add(p.interval)
	return true
}

// adopt takes over from a former holder what it left; a later moment of our own stays.
func (p *pace) adopt(next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interval > 0 && next.After(p.next) {
		p.next = next
	}
}

// upTo is the moment before which nothing goes.
func (p *pace) upTo() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}
