package drain

import (
	"sync"
	"time"
)

// spacer limits the rate of attempts of a process over all its lanes (delivery.rate): two attempts begin at least an
// interval apart. So no second has more attempts than configured. The zero value sets no limit. A spacer is safe for
// concurrent use.
type spacer struct {
	interval time.Duration

	mu     sync.Mutex
	nextAt time.Time // no attempt begins before this time
}

// untilNext returns how long the next attempt has to wait; 0 or less = an attempt can begin now.
func (s *spacer) untilNext(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextAt.Sub(now)
}

// reserveNext reports whether an attempt can begin now. If so, it sets nextAt to one interval after now. If it added
// the interval to the old nextAt instead, the attempt after a late one could begin too early.
func (s *spacer) reserveNext(now time.Time) bool {
	if s.interval == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nextAt.After(now) {
		return false
	}
	s.nextAt = now.Add(s.interval)
	return true
}

// adoptNext takes over a former holder's time for the next attempt, if that time is later than nextAt.
func (s *spacer) adoptNext(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interval > 0 && at.After(s.nextAt) {
		s.nextAt = at
	}
}

// nextAllowedAt returns the time before which no attempt begins.
func (s *spacer) nextAllowedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextAt
}
