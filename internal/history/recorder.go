package history

import (
	"sync"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

// Recorder counts what this instance does. It is the Observer of its drains. Safe for
// concurrent use.
type Recorder struct {
	now    func() time.Time
	counts func() map[string]int64 // storage transactions so far

	mu      sync.Mutex
	current *Minute
	closed  []*Minute        // over, oldest first; all of one hour once they are written
	counted map[string]int64 // counts at the end of the last minute that is in closed
	waited  map[int]int64    // by lane, as the minutes in closed have it
}

// waitEvery is how often what waits is noted where it stays the same: what is scheduled for
// next month must not cost a transaction a minute.
const waitEvery = 10 * time.Minute

// NewRecorder makes a Recorder. counts gives the storage transactions of this process so far.
func NewRecorder(now func() time.Time, counts func() map[string]int64) *Recorder {
	return &Recorder{now: now, counts: counts, waited: map[int]int64{}}
}

// minute gives the minute of now; the caller holds the lock.
func (r *Recorder) minute() *Minute {
	at := r.now().UTC().Truncate(time.Minute)
	if r.current == nil || at.After(r.current.At) {
		r.end()
		r.current = newMinute(at)
	}
	return r.current
}

// end puts the current minute aside, where there is something in it.
func (r *Recorder) end() {
	if r.current == nil || r.quiet(r.current) {
		return
	}
	for number, l := range r.current.Lanes {
		if l.Seen {
			r.waited[number] = l.Waiting
		}
	}
	r.counted = r.bill(r.current)
	r.closed = append(r.closed, r.current)
}

// bill adds the storage transactions since the last minute that was put aside, and gives all
// there were so far.
func (r *Recorder) bill(m *Minute) map[string]int64 {
	total := r.counts()
	for name, n := range total {
		if d := n - r.counted[name]; d > 0 {
			m.Transactions[name] += d
		}
	}
	return total
}

// quiet says that a minute need not be kept: nothing was done, and what waits is known.
func (r *Recorder) quiet(m *Minute) bool {
	if !m.idle() {
		return false
	}
	again := m.At.Equal(m.At.Truncate(waitEvery))
	for number, l := range m.Lanes {
		if l.Seen && (l.Waiting != r.waited[number] || l.Waiting > 0 && again) {
			return false
		}
	}
	return true
}

// Accepted counts messages that were filed.
func (r *Recorder) Accepted(lane, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute().lane(lane).Accepted += int64(n)
}

// Waits notes how many messages wait in a lane, and how long the oldest has.
func (r *Recorder) Waits(lane int, waiting int64, oldest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.minute().lane(lane)
	l.Seen, l.Waiting, l.Oldest = true, waiting, oldest
}

// Attempted implements drain.Observer.
func (r *Recorder) Attempted(_ int, _ *weir.Message, result weir.Result, outcome weir.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.minute()
	m.Attempts[outcome]++
	m.Attempt.Add(result.Duration)
}

// Finished implements drain.Observer.
func (r *Recorder) Finished(lane int, f drain.Final) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.minute()
	m.lane(lane).final(f.Stage)
	if f.Stage == weir.Delivered {
		m.Lag.Add(f.At.Sub(f.Since))
	}
}

// Lease implements drain.Observer.
func (r *Recorder) Lease(int, drain.LeaseEvent) {}

// take gives copies of the minutes put aside, those of the minute that is not over among
// them where unfinished is asked for.
func (r *Recorder) take(unfinished bool) []*Minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute() // ends the last one when its time is over
	var all []*Minute
	for _, m := range r.closed {
		all = append(all, m.clone())
	}
	if unfinished && !r.quiet(r.current) {
		c := r.current.clone()
		r.bill(c)
		all = append(all, c)
	}
	return all
}

// drop lets go of what was written and belongs to hours before the given one.
func (r *Recorder) drop(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.closed) > 0 && r.closed[0].At.Before(before) {
		r.closed = r.closed[1:]
	}
}

func (m *Minute) clone() *Minute {
	c := newMinute(m.At)
	c.plus(m)
	return c
}
