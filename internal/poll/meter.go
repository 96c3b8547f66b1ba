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

// Meter is a Sender that counts and measures what goes through it. Safe for concurrent use.
type Meter struct {
	sender Sender
	now    func() time.Time
	moved  chan struct{} // has room for one: the average may be another

	mu       sync.Mutex
	counts   Counts
	answered int           // attempts that the average is made of
	total    time.Duration // their time
	flying   int           // attempts under way
	since    time.Time     // when flying rose from 0
	busy     time.Duration // time with attempts under way, up to since
}

// Counts says what came of the attempts.
type Counts struct {
	Delivered, Rejected, Retried, Unavailable, Cut int
}

// NewMeter makes a Meter before a Sender.
func NewMeter(sender Sender, now func() time.Time) *Meter {
	return &Meter{sender: sender, now: now, moved: make(chan struct{}, 1)}
}

// Send makes one attempt.
func (m *Meter) Send(ctx context.Context, d weir.Delivery) weir.Result {
	m.begin()
	var r weir.Result
	defer func() { m.end(r) }() // a panic goes on to the drain, and is no attempt under way
	r = m.sender.Send(ctx, d)
	return r
}

func (m *Meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flying++; m.flying == 1 {
		m.since = m.now()
	}
}

func (m *Meter) end(r weir.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flying--; m.flying == 0 {
		m.busy += m.now().Sub(m.since)
	}
	m.count(r)
	select {
	case m.moved <- struct{}{}:
	default:
	}
}

// count takes a result in. What found no CMS says nothing of how long one takes.
func (m *Meter) count(r weir.Result) {
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

// Average is the mean time of the attempts, false when none was answered yet.
func (m *Meter) Average() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered == 0 {
		return 0, false
	}
	return m.total / time.Duration(m.answered), true
}

// Counts gives what came of the attempts so far.
func (m *Meter) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// Busy is the time in which at least one attempt was under way.
func (m *Meter) Busy() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.flying > 0 {
		return m.busy + m.now().Sub(m.since)
	}
	return m.busy
}
