package drain

import (
	"sync"
	"time"
)

const (
	// leadMin and leadMax bound how long before its due time a message is moved. If storage takes
	// longer than leadMax, messages are late, because an upstream can no longer reschedule a moved
	// one.
	leadMin, leadMax = 50 * time.Millisecond, time.Second
	// firstLatency is the latency of storage that a process assumes until it has measured it:
	// about that of a request that storage refuses once.
	firstLatency = 125 * time.Millisecond
	// After latencySpan measurements, or latencyAge, the oldest measurements are forgotten. Storage refuses some
	// requests in a thousand, and fewer measurements would often contain none of these.
	latencySpan = 256
	latencyAge  = 10 * time.Minute
)

// leadTime follows how long storage takes for the two steps of a move, and so how long before its
// due time a message must be moved to be ready by then. It is safe for concurrent use.
type leadTime struct {
	mu          sync.Mutex
	read, write maxLatency
}

// addMeasurement records how long the steps of a move took; zero = there was no such step.
func (l *leadTime) addMeasurement(now time.Time, read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read.addLatency(now, read)
	l.write.addLatency(now, write)
}

// current returns the lead time of a message that waits for no other move.
func (l *leadTime) current() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(l.read.longest()+l.write.longest(), leadMin), leadMax)
}

// maxLatency keeps the longest of the last measurements, between latencySpan and twice as many. A
// high percentile of so few is their maximum.
type maxLatency struct {
	current, previous time.Duration // of the present span, and of the span before
	count             int           // in the current span
	since             time.Time     // of the current span
	hasBegun          bool
}

func (m *maxLatency) addLatency(now time.Time, took time.Duration) {
	if took <= 0 {
		return
	}
	if !m.hasBegun {
		m.hasBegun, m.since, m.previous = true, now, firstLatency
	}
	if m.count >= latencySpan || now.Sub(m.since) > latencyAge {
		m.previous, m.current, m.count, m.since = m.current, 0, 0, now
	}
	m.current, m.count = max(m.current, took), m.count+1
}

func (m *maxLatency) longest() time.Duration {
	if !m.hasBegun {
		return firstLatency
	}
	return max(m.current, m.previous)
}
