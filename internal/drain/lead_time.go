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

// leadTime follows how long storage takes for the two steps of a release, and so how long before
// its moment a message must be released to be ready by then. Safe for concurrent use.
type leadTime struct {
	mu          sync.Mutex
	read, write maxLatency
}

// addMeasurement takes in how long the steps of a release took; zero = there was no such step.
func (l *leadTime) addMeasurement(now time.Time, read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read.addLatency(now, read)
	l.write.addLatency(now, write)
}

// current returns the lead of a message that waits for no other release.
func (l *leadTime) current() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(l.read.longest()+l.write.longest(), leadMin), leadMax)
}

// maxLatency keeps the longest of the last measurements, between latencySpan and twice as many. A
// high percentile of so few is their maximum.
type maxLatency struct {
	current, previous time.Duration
	count             int
	since             time.Time
	hasBegun          bool
}

func (s *maxLatency) addLatency(now time.Time, took time.Duration) {
	if took <= 0 {
		return
	}
	if !s.hasBegun {
		s.hasBegun, s.since, s.previous = true, now, firstLatency
	}
	if s.count >= latencySpan || now.Sub(s.since) > latencyAge {
		s.previous, s.current, s.count, s.since = s.current, 0, 0, now
	}
	s.current, s.count = max(s.current, took), s.count+1
}

func (s *maxLatency) longest() time.Duration {
	if !s.hasBegun {
		return firstLatency
	}
	return max(s.current, s.previous)
}
