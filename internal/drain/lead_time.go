package drain

import (
	"sync"
	"time"
)

const (
	// Before a message is due, the holder moves it from the scheduled messages into its key's queue. The move begins at
	// least leadMin and at most leadMax before the due time. leadMax is short, because an upstream can no longer
	// reschedule a moved message. If storage takes longer than leadMax for a move, the message is sent late.
	leadMin, leadMax = 50 * time.Millisecond, time.Second
	// Until a process has measured a step of a move, it assumes that the step takes firstLatency. That is about the
	// duration of a request that storage refuses once and that is then repeated.
	firstLatency = 125 * time.Millisecond
	// A span of measurements ends after latencySpan measurements, or after latencyAge. Storage refuses only a few
	// requests in a thousand, and shorter spans would often have none of these slow requests.
	latencySpan = 256
	latencyAge  = 10 * time.Minute
)

// leadTime measures how long storage takes for the two steps of a move: the read of the messages, and the write of
// their positions. From these durations it derives how long before the due time a move has to begin. leadTime is safe
// for concurrent use.
type leadTime struct {
	mu          sync.Mutex
	read, write maxLatency
}

// addMeasurement records how long the steps of a move took; zero = the step was not measured.
func (l *leadTime) addMeasurement(now time.Time, read, write time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read.addLatency(now, read)
	l.write.addLatency(now, write)
}

// current returns how long before the due time a move begins. A move that waits for other moves begins earlier;
// see dueMover.eachTurn.
func (l *leadTime) current() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(l.read.longest()+l.write.longest(), leadMin), leadMax)
}

// maxLatency keeps the longest measurement of the current span and of the previous span. For so few measurements the
// maximum is as good as a high percentile.
type maxLatency struct {
	current, previous time.Duration // the longest measurement of the current and of the previous span
	count             int           // number of measurements in the current span
	since             time.Time     // start of the current span
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
