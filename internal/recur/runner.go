package recur

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/wake"
	"weir/internal/weir"
)

const (
	// minRetry is the pause after a schedule's first failure. Each further failure in a row doubles
	// the pause, up to maxRetry.
	minRetry = 500 * time.Millisecond
	maxRetry = 30 * time.Second
)

// Log appends messages and returns their status.
type Log interface {
	Append(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Accepter applies the contract to a body, and returns the message.
type Accepter interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Config configures a Runner. All fields are required, except Skew, Rand and Limits.
type Config struct {
	Store     *Store
	Log       Log
	Contracts Accepter
	Waker     wake.Ringer
	Now       func() time.Time
	// Skew returns the time by which the clock of storage is ahead of Now; nil = it is Now.
	Skew   func(context.Context) (time.Duration, error)
	Rand   func() float64 // returns 0 to 1; must allow concurrent calls; nil = math/rand
	Logger *slog.Logger
	Limits Limits
}

// Runner appends the message of each schedule at the due times, and changes schedules for users.
// Several processes can have a Runner for the same table.
type Runner struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc

	// putLock lets the process store only one definition at a time. It is a channel, not a mutex:
	// while a goroutine waits for a mutex, the virtual time of tests stands still.
	putLock chan struct{}

	mu       sync.Mutex
	timers   map[string]*scheduleTimer
	revision int64 // number of times that a timer was set
	isClosed bool
	inFlight sync.WaitGroup
}

// scheduleTimer is the timer of one schedule.
type scheduleTimer struct {
	timer      *time.Timer
	fireAt     time.Time
	order      firingOrder
	revision   int64         // Runner.revision when the timer was set
	firingLock chan struct{} // lock of fireTimer; a channel for the same reason as Runner.putLock
	failures   int           // failures in a row; only fireTimer uses this field
}

// firingOrder tells when the timers of several processes fire for an occurrence. The process that
// appended the last occurrence fires first. All other processes fire later, at least by laterDelay.
// They usually find that the occurrence is handled, which costs each of them one read.
type firingOrder bool

const (
	firesFirst firingOrder = true
	firesLater firingOrder = false
)

// laterDelay delays a timer that fires later. A random time of up to laterDelay is added.
const laterDelay = 50 * time.Millisecond

// maxWait bounds a timer's wait, so that the wait plus the delays cannot overflow a time.Duration.
const maxWait = 100 * 365 * 24 * time.Hour

// New returns a Runner without timers; Load sets the timers.
func New(cfg Config) *Runner {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{cfg: cfg, ctx: ctx, cancel: cancel, timers: map[string]*scheduleTimer{},
		putLock: make(chan struct{}, 1)}
}

// Load reads all schedules and sets their timers. A process calls Load at its start and in each
// sweep. So each process has a timer for every schedule, and a schedule still runs after the
// process that stored it has died.
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

// alwaysNewer is the readRevision of a caller of resetTimer that has just written the row. This
// caller's time always replaces the timer's present time.
const alwaysNewer = math.MaxInt64

// resetTimer sets a schedule's timer; a zero time removes the timer. The parameter readRevision is
// Runner.revision before the caller read the row. If the timer's revision is higher, the timer was
// set later, and its time can be newer than the caller's row. Then resetTimer leaves the timer
// unchanged.
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
		// if the time stays the same, Load does not turn firesFirst into firesLater
		order = order || t.order
	}

	wait := min(at.Sub(r.cfg.Now()), maxWait)
	if order == firesLater {
		wait += laterDelay + time.Duration(r.cfg.Rand()*float64(laterDelay))
	}

	r.revision++
	t.fireAt, t.order, t.revision = at, order, r.revision
	t.timer.Reset(wait)
}

// fireTimer handles due occurrences, and sets the timer for the next one. The row, not the timer,
// decides whether an occurrence is due.
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
	var s Schedule
	var moved bool
	err := panics.Catch(func() (err error) {
		s, moved, err = r.processDue(r.ctx, name)
		return err
	})

	switch {
	case err == nil:
		t.failures = 0
		r.resetTimer(name, s.wakeAt(), readRevision, firingOrder(moved))
	case weir.KindOf(err) == weir.NotFound:
		r.resetTimer(name, time.Time{}, readRevision, firesLater)
	default:
		delay := min(minRetry<<min(t.failures, 10), maxRetry)
		t.failures++
		r.cfg.Logger.Warn("recur: schedule not run, will retry", "delay_ms", delay.Milliseconds(),
			"err", err)
		r.resetTimer(name, r.cfg.Now().Add(delay), readRevision, firesFirst)
	}
}

// Close stops the timers, and waits until the work on due occurrences is done. If ctx ends first,
// Close cancels the work and returns the cause of ctx.
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
