package limiter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir/internal/storage"
)

const (
	// jitter is the part of each period in which no slot begins. The delays of two requests, from
	// their slots to the CMS, can differ by as much.
	jitter = 50 * time.Millisecond
	// lateness is the time after its slot within which a request may begin.
	lateness = 20 * time.Millisecond
	// A slot is given to a request up to giveAhead before it: in this time the attempt prepares the
	// request.
	giveAhead = 15 * time.Millisecond
	// A lane is told to get ready readyAhead before its slot.
	readyAhead = 60 * time.Millisecond
	// unknownWait is the wait of a lane without a slot. The lane is told when it has one.
	unknownWait = time.Second
	// longestBegin bounds the wait of an attempt that is ready. If other requests took its slots,
	// the lane asks again, and can meanwhile do its other work.
	longestBegin = 250 * time.Millisecond
)

// ErrClosed is the error of waits after Close.
var ErrClosed = errors.New("the limiter is closed")

// ErrNoSlot is the error of Place.Begin if other requests took the slots.
var ErrNoSlot = errors.New("no slot was left for the attempt")

// Rate is the largest number of requests in a period.
type Rate struct {
	Count int
	Per   time.Duration
}

// spacing returns the time between two slots at a share of the rate.
func (r Rate) spacing(share float64) time.Duration {
	return time.Duration(float64(r.Per+jitter) / float64(r.Count) / share)
}

// Config configures a Limiter. All fields are required, except RetryAfter, Rand and Waited.
type Config struct {
	Table storage.Table
	CMS   string // name of the CMS, the key of its row
	Rate  Rate
	// name of a header with a delay, beside Retry-After; "" = none
	RetryAfter string
	// Now must not jump: time.Now does not, because it has a monotonic clock.
	Now  func() time.Time
	Rand func() float64 // returns 0 to 1, is called concurrently; nil = math/rand
	Log  *slog.Logger
	// Waited is told how long a request, or an attempt before its first one, waited; nil = no call
	Waited func(time.Duration)
}

// Limiter gives the requests of one process their slots. It is safe for concurrent use. Its caller
// must call Close.
type Limiter struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	// key of the row with which this process samples the clock of storage
	clockKey string

	mu       sync.Mutex
	clock    storageClock
	slots    []time.Time // own slots that no request has, in order, by the time of storage
	places   []*Place    // lanes that ask for slots, in the order in which they asked
	waiting  []*waiter   // requests outside and within attempts, in the order in which they asked
	starting []*waiter   // attempts that are ready for their first slot, in that order
	promised int         // how many of the slots attempts under way still need
	appetite appetite
	pace     pace
	news     news
	budget   budget
	changed  chan struct{} // closed and replaced when slots are added
	// the goroutine of reserve.go runs
	isReserving bool
	wake        chan struct{} // gets a value if a reservation may be needed
	setBack     time.Duration // by which the clock of storage was set back
	lead        time.Duration // from the plan of a reservation to its first slot, at least
	hasFailed   bool          // the last reservation failed
	refusals    int           // reservations in a row that another process's write refused
	// isAlone is true if no other process has written the row since this process did; lastETag is
	// the row of that write. Then own is the row, and need not be read.
	isAlone  bool
	lastETag storage.ETag
	own      state
}

// New returns a Limiter.
func New(cfg Config) *Limiter {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}

	l := &Limiter{cfg: cfg, appetite: newAppetite(cfg.Rate), pace: pace{share: 1},
		clockKey: clockKey(cfg.Rand()), wake: make(chan struct{}, 1), changed: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())

	return l
}

// Close ends all waits, and returns when the Limiter does nothing any more.
func (l *Limiter) Close() {
	l.mu.Lock()
	l.cancel() // under mu, so that no reservation begins after it
	l.mu.Unlock()
	l.done.Wait()
}

// Pace is the pace in force, as this process knows it.
type Pace struct {
	Share       float64 // part of the configured rate
	Reason      string  // why the share is below 1
	SlowSince   time.Time
	PausedUntil time.Time // zero = no pause
}

// Pace returns the pace in force, in the time of this process.
func (l *Limiter) Pace() Pace {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Pace{Share: l.pace.share, Reason: l.pace.reason}
	if !l.pace.slowSince.IsZero() {
		p.SlowSince = l.clock.toLocal(l.pace.slowSince)
	}

	if until := l.clock.toLocal(l.pace.pausedUntil); until.After(l.cfg.Now()) {
		p.PausedUntil = until
	}

	return p
}

// waiter is a request, or the first request of an attempt, that waits for a slot.
type waiter struct {
	needs int            // slots that must be there for it; all but one are then promised to it
	place *Place         // of the lane that begins an attempt; nil = no attempt begins
	given chan time.Time // gets the slot, by the clock of the process
}

// take waits until a request may begin. A request of an attempt uses a slot of its attempt.
func (l *Limiter) take(ctx context.Context) error {
	t, _ := ctx.Value(turnKey{l}).(*turn)
	asked := l.cfg.Now()
	if t != nil && t.useFirst(l) {
		return nil
	}

	w := &waiter{needs: 1}
	if t != nil {
		w.needs = max(1, t.takeLeft(l))
	}

	err := l.await(ctx, &l.waiting, w, nil)
	if err == nil {
		l.recordWait(asked)
		t.returnLeft(l, w.needs-1)
	}

	return err
}

// await waits in a queue until it has a slot, and the slot has come. If the slot was over when the
// caller's goroutine ran, await waits for another one. A value of expired ends the wait with
// ErrNoSlot.
func (l *Limiter) await(ctx context.Context, queue *[]*waiter, w *waiter,
	expired <-chan time.Time) error {
	w.given = make(chan time.Time, 1)
	for {
		slot, err := l.awaitSlot(ctx, queue, w, expired)
		if err != nil {
			return err
		}

		if l.awaitMoment(ctx, slot) {
			return nil
		}

		l.mu.Lock()
		l.breakPromise(w.needs - 1)
		l.mu.Unlock()
	}
}

// awaitMoment waits until the moment of a slot. It returns false if the moment was over before, or
// ctx ends.
func (l *Limiter) awaitMoment(ctx context.Context, slot time.Time) bool {
	if wait := slot.Sub(l.cfg.Now()); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()

		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}

	isOver := l.cfg.Now().Sub(slot) > lateness
	l.mu.Lock()
	defer l.mu.Unlock()
	if isOver {
		l.appetite.lost++
	} else {
		l.appetite.recordUsed(l.cfg.Now())
	}

	return !isOver
}

// awaitSlot waits in a queue until w has a slot.
func (l *Limiter) awaitSlot(ctx context.Context, queue *[]*waiter, w *waiter,
	expired <-chan time.Time) (time.Time, error) {
	l.mu.Lock()
	*queue = append(*queue, w)
	if w.place != nil && !slices.Contains(l.places, w.place) {
		// the slot that it had was over: it comes before the other lanes
		l.places = slices.Insert(l.places, 0, w.place)
	}
	l.mu.Unlock()
	defer l.leave(queue, w)

	for {
		wait, changed := l.giveSlots()
		timer := time.NewTimer(wait)
		select {
		case slot := <-w.given:
			timer.Stop()
			return slot, nil
		case <-changed:
			timer.Stop()
			continue
		case <-timer.C:
			continue
		case <-expired:
		case <-ctx.Done():
		case <-l.ctx.Done():
		}

		timer.Stop()

		switch {
		case ctx.Err() != nil:
			return time.Time{}, context.Cause(ctx)
		case l.ctx.Err() != nil:
			return time.Time{}, ErrClosed
		}

		return time.Time{}, ErrNoSlot
	}
}

// leave removes a waiter from its queue. If it has a slot that it did not take, the slot is free
// again for the other requests of the process.
func (l *Limiter) leave(queue *[]*waiter, w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*queue = slices.DeleteFunc(*queue, func(other *waiter) bool { return other == w })

	select {
	case slot := <-w.given:
		l.breakPromise(w.needs - 1)
		l.addSlots([]time.Time{l.clock.toStorage(slot)})
	default:
	}
}

// addSlots adds slots of this process. The caller holds mu.
func (l *Limiter) addSlots(slots []time.Time) {
	l.slots = append(l.slots, slots...)
	slices.SortFunc(l.slots, time.Time.Compare)
	close(l.changed)
	l.changed = make(chan struct{})
	l.notifyPlaces()
}

// giveSlots gives the slots whose time has come to requests, drops slots that are over, and starts
// a reservation if more slots are needed. A request calls giveSlots again after the returned wait,
// or when the channel is closed.
func (l *Limiter) giveSlots() (wait time.Duration, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.startReserving()

	now := l.cfg.Now()
	l.dropOver(now)
	for len(l.slots) > 0 {
		slot := l.clock.toLocal(l.slots[0])
		if wait := slot.Sub(now) - giveAhead; wait > 0 {
			return wait, l.changed
		}

		w := l.nextWaiter()
		if w == nil {
			break
		}

		l.slots = l.slots[1:]
		w.given <- slot
	}

	return unknownWait, l.changed
}

// nextWaiter removes the waiter that gets the next slot from its queue, and returns it; nil = none
// may have it. An attempt begins only if there is a slot for each of its requests that no attempt
// under way needs.
func (l *Limiter) nextWaiter() *waiter {
	if len(l.waiting) > 0 {
		w := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.promise(w.needs - 1)
		return w
	}

	for i, w := range l.starting {
		if len(l.slots) >= l.promised+w.needs {
			l.starting = slices.Delete(l.starting, i, i+1)
			l.promise(w.needs - 1)
			// The other lanes keep their slots: the queue and the slots both lose an entry.
			l.removePlace(w.place)
			return w
		}
	}

	return nil
}

// promise keeps further slots for an attempt; the slot that it has now is still among the slots.
// The caller holds mu.
func (l *Limiter) promise(n int) { l.promised = min(l.promised+n, max(0, len(l.slots)-1)) }

// breakPromise frees slots that an attempt does not need, or asks for again. The caller holds mu.
func (l *Limiter) breakPromise(n int) { l.promised = max(0, l.promised-n) }

// dropOver drops slots that are over, and those that a pause has taken away.
func (l *Limiter) dropOver(now time.Time) {
	kept := l.slots[:0]
	for _, slot := range l.slots {
		if now.Sub(l.clock.toLocal(slot)) > lateness || slot.Before(l.pace.pausedUntil) {
			l.appetite.lost++
			continue
		}
		kept = append(kept, slot)
	}

	l.slots = kept
	// The slots of an attempt that is slow are lost. It asks for others when it needs them: the CMS
	// may take long for each request.
	l.promised = min(l.promised, len(l.slots))
}

func (l *Limiter) recordWait(since time.Time) {
	if l.cfg.Waited != nil {
		l.cfg.Waited(l.cfg.Now().Sub(since))
	}
}

// countWaiting returns the number of slots that are needed now and not promised, and the largest
// number that one attempt needs at once. The caller holds mu.
func (l *Limiter) countWaiting() (sum, largest int) {
	for _, w := range l.waiting {
		sum += w.needs
		largest = max(largest, w.needs)
	}

	for _, p := range l.places {
		sum += p.needs
		largest = max(largest, p.needs)
	}

	return sum, largest
}

// Observe takes the answer of a request to the CMS into account.
func (l *Limiter) Observe(status int, header http.Header) {
	now := l.cfg.Now()
	pause := readPause(status, header, l.cfg.RetryAfter, now)
	l.mu.Lock()
	defer l.mu.Unlock()

	switch {
	case status == http.StatusTooManyRequests:
		l.news.isOverloaded = true
	case status < 400:
		l.news.hasSuccess = true
	}

	if until := now.Add(pause); pause > 0 && until.After(l.news.pausedUntil) {
		l.news.pausedUntil = until
		l.pace.pausedUntil = latest(l.pace.pausedUntil, l.clock.toStorage(until))
	}

	l.startReserving()
}
