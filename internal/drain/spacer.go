package drain

import (
	"sync"
	"time"
)

// spacer spaces the attempts of one process over all its lanes (delivery.rate): one in each interval and no bursts, so
// that no second has more attempts than configured. The zero value has no limit. It is safe for concurrent use.
type spacer struct {
	interval time.Duration

	mu     sync.Mutex
	nextAt time.Time // no attempt begins before this time
}

// untilNext returns the time until an attempt may begin. It reserves nothing.
func (s *spacer) untilNext(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextAt.Sub(now)
}

// reserveNext reserves the next attempt. It returns false if another lane was faster. The attempt after
// this one begins an interval from now or later, even if this one is late: so the rate is never exceeded.
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

// adoptNext takes over the time of a former holder, unless that of this process is later.
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
