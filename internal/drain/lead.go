package drain

import (
	"sync"
	"time"
)

const (
	// leadMin and leadMax bound how long before its moment a message is released. If storage
	// takes longer than leadMax, messages are late, because an upstream can no longer move a
	// released one.
	leadMin, leadMax = 50 * time.Millisecond, time.Second
	// firstLatency is the latency of storage that a process assumes until it has measured it:
	// about that of a request that storage refuses once.
	firstLatency = 125 * time.Millisecond
	// latencySpan and latencyAge are after how many measurements, and how long, the oldest ones
	// are forgotten: few enough requests are refused (some in a thousand) that fewer would often
	// show none.
	latencySpan = 256
	latencyAge  = 10 * time.Minute
)

// lead follows how long storage takes for the two steps of a release, and so how long before
// its moment a message must be released to be ready by then. Safe for concurrent use.
type lead struct {
	mu          sync.Mutex
	read, write slowest
}

// measured takes in how long the steps of a release took; zero = there was no such step.
func (l *lead) measured(now time.Time, read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read.add(now, read)
	l.write.add(now, write)
}

// length returns the lead of a message that waits for no other release.
func (l *lead) length() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(l.read.most()+l.write.most(), leadMin), leadMax)
}

// slowest keeps the longest of the last measurements, between latencySpan and twice as many. A
// high percentile of so few is their maximum.
type slowest struct {
	now, before time.Duration
	n           int
	since       time.Time
	began       bool
}

func (s *slowest) add(now time.Time, took time.Duration) {
	if took <= 0 {
		return
	}
	if !s.began {
		s.began, s.since, s.before = true, now, firstLatency
	}
	if s.n >= latencySpan || now.Sub(s.since) > latencyAge {
		s.before, s.now, s.n, s.since = s.now, 0, 0, now
	}
	s.now, s.n = max(s.now, took), s.n+1
}

func (s *slowest) most() time.Duration {
	if !s.began {
		return firstLatency
	}
	return max(s.now, s.before)
}
