package drain

import (
	"sync"
	"time"
)

const (
	// The move of a message begins before the message is due, by at least leadMin and at most leadMax. leadMax is
	// short, because an upstream can no longer reschedule a moved message. If storage takes longer than leadMax,
	// messages are sent late.
	leadMin, leadMax = 50 * time.Millisecond, time.Second
	// Until a process has measured a step, it assumes that the step takes firstLatency. A request takes about that time
	// if storage refuses it once, and it is then repeated.
	firstLatency = 125 * time.Millisecond
	// A span of measurements ends after latencySpan measurements, or when it is older than latencyAge. Storage refuses
	// some requests in a thousand, and shorter spans would often contain none of these.
	latencySpan = 256
	latencyAge  = 10 * time.Minute
)

// leadTime measures how long storage takes for the two steps of a move. From that it derives how long before a
// message's due time the move has to begin. It is safe for concurrent use.
type leadTime struct {
	mu          sync.Mutex
	read, write maxLatency
}

// addMeasurement records how long the steps of a move took; zero = that step was not measured.
func (l *leadTime) addMeasurement(now time.Time, read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read.addLatency(now, read)
	l.write.addLatency(now, write)
}

// current returns the lead time of a move that does not wait for other moves.
func (l *leadTime) current() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(l.read.longest()+l.write.longest(), leadMin), leadMax)
}

// maxLatency keeps the longest measurement of the current span and of the span before. For so few measurements the
// maximum is as good as a high percentile.
type maxLatency struct {
	current, previous time.Duration // the longest measurement of the current span, and of the span before
	count             int           // number of measurements in the current span
	since             time.Time     // begin of the current span
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
