package poll

import (
	"context"
	"sync"
	"time"

	"weir/internal/weir"
)

// Sender makes one attempt.
type Sender interface {
	Send(ctx context.Context, d weir.Delivery) weir.Result
}

// Meter is a Sender that counts and measures the attempts of another Sender. It is safe for concurrent use.
type Meter struct {
	sender         Sender
	now            func() time.Time
	averageChanged chan struct{} // buffer of one; receives after each attempt

	mu        sync.Mutex
	counts    Counts
	answered  int           // number of attempts in the average
	total     time.Duration // time of the attempts in the average
	inFlight  int           // attempts in flight
	busySince time.Time     // time at which inFlight rose from 0
	busyTotal time.Duration // time with attempts in flight, until inFlight was 0 for the last time
}

// Counts has the number of attempts for each outcome; Cut has the attempts that Weir cut off.
type Counts struct {
	Delivered, Rejected, Retried, Unavailable, Cut int
}

// NewMeter returns a Meter in front of a Sender.
func NewMeter(sender Sender, now func() time.Time) *Meter {
	return &Meter{sender: sender, now: now, averageChanged: make(chan struct{}, 1)}
}

// Send makes one attempt.
func (m *Meter) Send(ctx context.Context, d weir.Delivery) weir.Result {
	m.beginAttempt()
	var r weir.Result
	defer func() { m.endAttempt(r) }() // deferred, so that it also runs after a panic, which the drain handles
	r = m.sender.Send(ctx, d)
	return r
}

func (m *Meter) beginAttempt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight++; m.inFlight == 1 {
		m.busySince = m.now()
	}
}

func (m *Meter) endAttempt(r weir.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight--; m.inFlight == 0 {
		m.busyTotal += m.now().Sub(m.busySince)
	}
	m.countResult(r)
	select {
	case m.averageChanged <- struct{}{}:
	default:
	}
}

// countResult counts a result. The average leaves out attempts that were unavailable or cut off.
func (m *Meter) countResult(r weir.Result) {
	switch r.Outcome {
	case weir.OutcomeDelivered:
		m.counts.Delivered++
	case weir.OutcomeRejected:
		m.counts.Rejected++
	case weir.OutcomeRetry:
		m.counts.Retried++
	case weir.OutcomeUnavailable:
		m.counts.Unavailable++
		return
	default:
		m.counts.Cut++
		return
	}
	m.answered++
	m.total += r.Duration
}

// Average returns the mean time of the attempts, and false if the mean has no attempt yet.
func (m *Meter) Average() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered == 0 {
		return 0, false
	}
	return m.total / time.Duration(m.answered), true
}

// Counts returns the attempts so far.
func (m *Meter) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// Busy returns the time in which at least one attempt was in flight.
func (m *Meter) Busy() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight > 0 {
		return m.busyTotal + m.now().Sub(m.busySince)
	}
	return m.busyTotal
}
