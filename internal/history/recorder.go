package history

import (
	"sync"
	"time"

	"weir/internal/drain"
	"weir/internal/weir"
)

// Recorder counts the activity of this instance. It is a drain.Observer. A Recorder is safe for
// concurrent use.
type Recorder struct {
	now func() time.Time
	// returns the storage transactions so far; see Minute.Transactions
	counts func() map[string]int64

	// Throttled returns the number of requests of this process that storage has throttled so far;
	// nil = not counted. It is set before the first minute.
	Throttled func() int64

	mu            sync.Mutex
	currentMinute *Minute
	completed     []*Minute        // past minutes, oldest first; dropBefore removes written ones
	countsAtLast  map[string]int64 // result of "counts" when a minute was last added to "completed"
	throttledLast int64            // result of Throttled at that time
	lastWaiting   map[int]int64    // number of waiting messages by lane, as recorded last
	// rises with each call of Accepted, Attempted, Finished, Refused or Poisoned
	changes int64
}

// waitingInterval is the time after which an unchanged number of waiting messages is recorded
// again. The interval is long, because messages that are scheduled for next month must not cost a
// transaction each minute.
const waitingInterval = 10 * time.Minute

// NewRecorder returns a Recorder. The function "counts" returns the numbers of storage transactions
// of this process so far, by service and operation; see Minute.Transactions.
func NewRecorder(now func() time.Time, counts func() map[string]int64) *Recorder {
	return &Recorder{now: now, counts: counts, lastWaiting: map[int]int64{}}
}

// thisMinute returns the present minute. If the minute in currentMinute is over, thisMinute first
// completes that minute. The caller must have locked mu.
func (r *Recorder) thisMinute() *Minute {
	at := r.now().UTC().Truncate(time.Minute)
	if r.currentMinute == nil || at.After(r.currentMinute.At) {
		r.completeMinute()
		r.currentMinute = newMinute(at)
	}
	return r.currentMinute
}

// completeMinute adds currentMinute to the completed minutes, except if canSkip returns true.
func (r *Recorder) completeMinute() {
	if r.currentMinute == nil || r.canSkip(r.currentMinute) {
		return
	}

	for number, l := range r.currentMinute.Lanes {
		if l.Seen {
			r.lastWaiting[number] = l.Waiting
		}
	}

	r.countsAtLast = r.addTransactions(r.currentMinute)
	if r.Throttled != nil {
		r.throttledLast = r.addThrottled(r.currentMinute)
	}

	r.completed = append(r.completed, r.currentMinute)
}

// addTransactions adds to m the storage transactions that were made after the last completed
// minute. It returns the result of r.counts.
func (r *Recorder) addTransactions(m *Minute) map[string]int64 {
	total := r.counts()
	for name, n := range total {
		if d := n - r.countsAtLast[name]; d > 0 {
			m.Transactions[name] += d
		}
	}
	return total
}

// addThrottled does for throttled requests what addTransactions does for transactions.
func (r *Recorder) addThrottled(m *Minute) int64 {
	total := r.Throttled()
	m.Throttled += max(total-r.throttledLast, 0)
	return total
}

// RecentlyThrottled returns the number of requests of this process that storage throttled since a
// time. It can lack minutes of the previous hour, and it also counts the requests of earlier
// minutes without other activity.
func (r *Recorder) RecentlyThrottled(since time.Time) (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thisMinute() // completes currentMinute if that minute is over
	n = r.Throttled() - r.throttledLast
	for _, m := range r.completed {
		if !m.At.Before(since.UTC().Truncate(time.Minute)) {
			n += m.Throttled
		}
	}

	return n
}

// canSkip reports whether m need not be stored: m has no activity, and no number of waiting
// messages has to be recorded. A number is recorded when it changes. A number above 0 is also
// recorded once per waitingInterval.
func (r *Recorder) canSkip(m *Minute) bool {
	if !m.isIdle() {
		return false
	}

	again := m.At.Equal(m.At.Truncate(waitingInterval))
	for number, l := range m.Lanes {
		if l.Seen && (l.Waiting != r.lastWaiting[number] || l.Waiting > 0 && again) {
			return false
		}
	}

	return true
}

// Accepted counts n messages that were accepted into a lane.
func (r *Recorder) Accepted(lane, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thisMinute().laneOf(lane).Accepted += int64(n)
	r.changes++
}

// maxNames limits the number of refusals, and of senders, that a minute keeps apart. So the row of
// an hour stays small if each post breaks another rule, or comes with another key.
const maxNames = 32

// Refused counts a refused submission.
func (r *Recorder) Refused(refusal Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.thisMinute()
	if _, known := m.Refused[refusal]; !known && len(m.Refused) >= maxNames {
		refusal.Contract, refusal.Rule = "", ""
	}

	m.Refused[refusal]++
	r.changes++
}

// OtherSenders counts for the senders that a minute does not keep apart.
const OtherSenders = "other"

// Sent counts an accepted post, by its sender: the fingerprint of a function key, or the name of a
// known upstream.
func (r *Recorder) Sent(sender string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.thisMinute()
	if _, known := m.Senders[sender]; !known && len(m.Senders) >= maxNames {
		sender = OtherSenders
	}

	m.Senders[sender]++
}

// Poisoned counts a ticket that the host gave up.
func (r *Recorder) Poisoned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thisMinute().Poisoned++
	r.changes++
}

// Waits records the number of waiting messages of a lane, and the age of the oldest one.
func (r *Recorder) Waits(lane int, waiting int64, oldest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.thisMinute().laneOf(lane)
	l.Seen, l.Waiting, l.Oldest = true, waiting, oldest
}

// Attempted implements drain.Observer.
func (r *Recorder) Attempted(lane int, _ *weir.Message, result weir.Result, outcome weir.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.thisMinute()
	m.Attempts[outcome]++
	m.noteAttempt(outcome, r.now().UTC())

	if outcome == weir.OutcomeUnavailable {
		l := m.laneOf(lane)
		l.Uncounted++
		l.UncountedStatus = result.Status
	}

	r.changes++
	m.Attempt.Add(result.Duration)
}

// Finished implements drain.Observer.
func (r *Recorder) Finished(lane int, f drain.Final) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.thisMinute()
	m.laneOf(lane).countFinal(f.Stage)
	r.changes++
	if f.Stage == weir.Delivered {
		m.Lag.Add(f.At.Sub(f.Since))
	}
}

// Lease implements drain.Observer.
func (r *Recorder) Lease(int, drain.LeaseEvent) {}

func (r *Recorder) countChanges() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// copyMinutes returns copies of the completed minutes. If "unfinished" is true and the present
// minute has to be stored (see canSkip), copyMinutes also returns a copy of the present minute.
func (r *Recorder) copyMinutes(unfinished bool) []*Minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.thisMinute() // completes currentMinute if that minute is over
	var all []*Minute
	for _, m := range r.completed {
		all = append(all, m.copyMinute())
	}

	if unfinished && !r.canSkip(r.currentMinute) {
		c := r.currentMinute.copyMinute()
		r.addTransactions(c)
		if r.Throttled != nil {
			r.addThrottled(c)
		}
		all = append(all, c)
	}

	return all
}

// dropBefore drops the completed minutes that began before a time. The caller must have written
// these minutes.
func (r *Recorder) dropBefore(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.completed) > 0 && r.completed[0].At.Before(before) {
		r.completed = r.completed[1:]
	}
}

func (m *Minute) copyMinute() *Minute {
	c := newMinute(m.At)
	c.addMinute(m)
	return c
}
