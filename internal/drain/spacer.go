package drain

import (
	"sync"
	"time"
)

// spacer spaces the attempts of one process over all its lanes (delivery.rate): two attempts begin at least an interval
// apart. So there are no bursts, and no second has more attempts than configured. The zero value has no limit. It is
// safe for concurrent use.
type spacer struct {
	interval time.Duration

	mu     sync.Mutex
	nextAt time.Time // no attempt begins before this time
}

// untilNext returns the time until an attempt may begin; 0 or less = an attempt may begin now. It reserves nothing.
func (s *spacer) untilNext(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextAt.Sub(now)
}

// reserveNext reserves an attempt that begins now. It returns false if none may begin now, because another lane was
// faster. The next attempt begins an interval from now or later, even if this one is late: so the rate is not exceeded.
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

// adoptNext takes over a former holder's time for the next attempt, unless that of this process is later.
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
