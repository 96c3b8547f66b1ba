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

// Meter is a Sender that counts and measures the attempts of another Sender. It is safe for
// concurrent use.
type Meter struct {
	sender         Sender
	now            func() time.Time
	averageChanged chan struct{} // receives a value after each attempt; buffer of one

	mu        sync.Mutex
	counts    Counts
	answered  int           // number of attempts in the average
	total     time.Duration // total time of the attempts in the average
	inFlight  int           // attempts in flight
	busySince time.Time     // time at which inFlight last rose from 0
	// time with attempts in flight, up to the last time that inFlight fell to 0
	busyTotal time.Duration
}

// Counts has the number of attempts for each outcome. Cut counts the attempts that Weir cut off.
type Counts struct {
	Delivered, Rejected, Retried, Unavailable, Cut int
}

// NewMeter returns a Meter that passes attempts to sender.
func NewMeter(sender Sender, now func() time.Time) *Meter {
	return &Meter{sender: sender, now: now, averageChanged: make(chan struct{}, 1)}
}

// Send passes an attempt to the Sender, and measures it.
func (m *Meter) Send(ctx context.Context, d weir.Delivery) weir.Result {
	m.beginAttempt()
	var r weir.Result
	// deferred, because a Sender can panic, and the drain recovers from the panic
	defer func() { m.endAttempt(r) }()
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

// countResult counts a result. Attempts with the outcome unavailable or none do not count for the
// average.
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

// Average returns the mean time of the attempts with the outcome delivered, rejected or retry. It
// returns false before the first such attempt.
func (m *Meter) Average() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered == 0 {
		return 0, false
	}
	return m.total / time.Duration(m.answered), true
}

// Counts returns the numbers of the attempts so far.
func (m *Meter) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// Busy returns the total time with at least one attempt in flight.
func (m *Meter) Busy() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight > 0 {
		return m.busyTotal + m.now().Sub(m.busySince)
	}
	return m.busyTotal
}
