package recur

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// After a failure a schedule is tried again after minRetry. Each further pause is twice as long as the one before,
	// up to maxRetry. The sweep tries the schedule, too.
	minRetry = 500 * time.Millisecond
	maxRetry = 30 * time.Second
)

// Log appends messages and returns their status.
type Log interface {
	Append(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Accepter turns a body into a message by its contract.
type Accepter interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Tickets enqueues a ticket for a lane, without making the caller wait.
type Tickets interface{ EnqueueAsync(lane int) }

// Config configures a Runner. All fields are required, except Rand and Limits.
type Config struct {
	Store     *Store
	Log       Log
	Contracts Accepter
	Tickets   Tickets
	Now       func() time.Time
	Rand      func() float64 // 0 to 1, called concurrently; nil = math/rand
	Logger    *slog.Logger
	Limits    Limits
}

// Runner runs the schedules in this process: it has a timer for each schedule, and changes schedules for
// users. Any number of runners may share a table.
type Runner struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc

	// putLock has one value while storeDefinition runs. It is not a mutex, because in tests virtual time stops while a
	// goroutine waits for a mutex.
	putLock chan struct{}

	mu       sync.Mutex
	timers   map[string]*scheduleTimer
	revision int64 // number of times that a timer was set
	isClosed bool
	inFlight sync.WaitGroup
}

// scheduleTimer fires at the next occurrence of one schedule in this process.
type scheduleTimer struct {
	timer      *time.Timer
	fireAt     time.Time
	order      firingOrder
	revision   int64         // Runner.revision when it was set
	firingLock chan struct{} // has one value while fireTimer runs; not a mutex, for the same reason as Runner.putLock
	failures   int           // in a row; only fireTimer uses it
}

// firingOrder is the order in which the timers of processes fire. The timer of the process that filed the last
// occurrence fires first. The timers of all other processes fire laterDelay later, and these processes usually find the
// occurrence filed. So an occurrence costs each of them one read, and no process waits for another.
type firingOrder bool

const (
	firesFirst firingOrder = true
	firesLater firingOrder = false
)

// laterDelay is the delay of the timers that fire later. A random time of up to laterDelay is added to it.
const laterDelay = 50 * time.Millisecond

// maxWait bounds a timer's wait, so that the wait plus the delays cannot overflow a time.Duration.
const maxWait = 100 * 365 * 24 * time.Hour

// New returns a Runner. It has no timers before Load.
func New(cfg Config) *Runner {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{cfg: cfg, ctx: ctx, cancel: cancel, timers: map[string]*scheduleTimer{},
		putLock: make(chan struct{}, 1)}
}

// Load reads the next due time of all schedules, and sets their timers. It is called at the start of the process and by
// each sweep, so that this process also runs the schedules of a process that has died.
func (r *Runner) Load(ctx context.Context) error {
	r.mu.Lock()
	readRevision := r.revision
	r.mu.Unlock()
	schedules, err := r.cfg.Store.List(ctx)
	for _, s := range schedules {
		r.resetTimer(s.Name, s.wakeAt(), readRevision, firesLater)
	}
	return err
}

// alwaysNewer is a readRevision, for a caller of resetTimer that has just written the row. The time that such a caller
// sets replaces the time of any earlier read.
const alwaysNewer = math.MaxInt64

// resetTimer sets a schedule's timer; a zero time removes the timer. The parameter readRevision is the value that
// Runner.revision had before the caller read the row. A timer that was set after that read is newer, so resetTimer
// leaves it unchanged.
func (r *Runner) resetTimer(name string, at time.Time, readRevision int64, order firingOrder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.timers[name]
	if r.isClosed || t != nil && t.revision > readRevision {
		return
	}
	if at.IsZero() {
		if t != nil {
			t.timer.Stop()
			delete(r.timers, name)
		}
		return
	}
	if t == nil {
		t = &scheduleTimer{firingLock: make(chan struct{}, 1)}
		t.timer = time.AfterFunc(math.MaxInt64, func() { r.fireTimer(name, t) })
		r.timers[name] = t
	} else if t.fireAt.Equal(at) {
		order = order || t.order // a sweep does not make the timer fire later
	}
	wait := min(at.Sub(r.cfg.Now()), maxWait)
	if order == firesLater {
		wait += laterDelay + time.Duration(r.cfg.Rand()*float64(laterDelay))
	}
	r.revision++
	t.fireAt, t.order, t.revision = at, order, r.revision
	t.timer.Reset(wait)
}

// fireTimer processes due occurrences, and sets the timer for the next one. The row decides whether
// an occurrence is due, not the timer.
func (r *Runner) fireTimer(name string, t *scheduleTimer) {
	t.firingLock <- struct{}{}
	defer func() { <-t.firingLock }()
	r.mu.Lock()
	readRevision := r.revision
	if r.isClosed {
		r.mu.Unlock()
		return
	}
	r.inFlight.Add(1)
	r.mu.Unlock()
	defer r.inFlight.Done()
	s, moved, err := r.processDue(r.ctx, name, 0)
	switch {
	case err == nil:
		t.failures = 0
		r.resetTimer(name, s.wakeAt(), readRevision, firingOrder(moved))
	case weir.KindOf(err) == weir.NotFound:
		r.resetTimer(name, time.Time{}, readRevision, firesLater)
	default:
		delay := min(minRetry<<min(t.failures, 10), maxRetry)
		t.failures++
		r.cfg.Logger.Warn("recur: schedule not run, will retry", "delay_ms", delay.Milliseconds(), "err", err)
		r.resetTimer(name, r.cfg.Now().Add(delay), readRevision, firesFirst)
	}
}

// Close stops the timers, and waits until no due occurrence is being processed. If ctx ends first, Close cuts the
// processing off and returns the cause.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.isClosed = true
	for _, t := range r.timers {
		t.timer.Stop()
	}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() { r.inFlight.Wait(); close(done) }()
	defer r.cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		r.cancel()
		<-done
		return context.Cause(ctx)
	}
}
