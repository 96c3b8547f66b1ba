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

// After a failure a schedule is tried again, at first soon and then less often; the sweep
// does too.
const (
	firstRetry = 500 * time.Millisecond
	maxRetry   = 30 * time.Second
)

// Log files messages and tells what became of them.
type Log interface {
	Append(ctx context.Context, m weir.Message, idempotencyKey string) (lane.Receipt, error)
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Accepter takes a body through its contract.
type Accepter interface {
	Accept(ctx context.Context, contentType string, body []byte) (weir.Message, error)
}

// Bell rings a lane through the queue, without keeping the caller waiting.
type Bell interface{ RingSoon(lane int) }

// Config is what a runner needs; all fields but Rand.
type Config struct {
	Store     *Store
	Log       Log
	Contracts Accepter
	Bell      Bell
	Now       func() time.Time
	Rand      func() float64 // 0 to 1, called concurrently; nil = math/rand
	Logger    *slog.Logger
}

// Runner runs the schedules in this process: it keeps a timer for each, and changes them
// for users. Any number of runners may share a table.
type Runner struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	timers   map[string]*timer
	settings int64 // how often a timer was set
	closed   bool
	firing   sync.WaitGroup
}

// timer is one schedule's next moment in this process.
type timer struct {
	t        *time.Timer
	at       time.Time
	turn     rank
	set      int64         // which of all settings it was
	firing   chan struct{} // one firing at a time; no mutex, which virtual time does not see
	failures int           // in a row; by the one that fires
}

// rank says when a process looks. The one that filed the last occurrence looks at the due
// moment; the others a little later, and then mostly find it filed: so an occurrence costs
// each of them one read. None waits for another.
type rank bool

const (
	leads   rank = true
	follows rank = false
)

// followDelay is how much later the others look, and up to as much again, drawn anew each
// time.
const followDelay = 50 * time.Millisecond

// longestWait leaves room to add to it: what is due in centuries is as far off as a
// time.Duration can say, and would be past with a moment more.
const longestWait = 100 * 365 * 24 * time.Hour

// New makes a runner. It has no timers until Load.
func New(cfg Config) *Runner {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{cfg: cfg, ctx: ctx, cancel: cancel, timers: map[string]*timer{}}
}

// Load reads when all schedules are due next, and sets their timers. It is called at
// start and by each sweep, so that a schedule whose process is gone is taken over.
func (r *Runner) Load(ctx context.Context) error {
	r.mu.Lock()
	asked := r.settings
	r.mu.Unlock()
	schedules, err := r.cfg.Store.List(ctx)
	for _, s := range schedules {
		r.set(s.Name, s.lookAt(), asked, follows)
	}
	return err
}

// newest as what was asked: what is said is newer than all that was read.
const newest = math.MaxInt64

// set sets a schedule's timer; with a zero time it is taken away. Asked names the moment
// at which the row was read: where the timer was set since, this is older news.
func (r *Runner) set(name string, at time.Time, asked int64, turn rank) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.timers[name]
	if r.closed || t != nil && t.set > asked {
		return
	}
	if at.IsZero() {
		if t != nil {
			t.t.Stop()
			delete(r.timers, name)
		}
		return
	}
	if t == nil {
		t = &timer{firing: make(chan struct{}, 1)}
		t.t = time.AfterFunc(math.MaxInt64, func() { r.fire(name, t) })
		r.timers[name] = t
	} else if t.at.Equal(at) {
		turn = turn || t.turn // a sweep does not take the turn away
	}
	wait := min(at.Sub(r.cfg.Now()), longestWait)
	if turn == follows {
		wait += followDelay + time.Duration(r.cfg.Rand()*float64(followDelay))
	}
	r.settings++
	t.at, t.turn, t.set = at, turn, r.settings
	t.t.Reset(wait)
}

// fire settles what is due, and sets the timer for what comes next. The timer only says
// when to look: what is due, the row says.
func (r *Runner) fire(name string, t *timer) {
	t.firing <- struct{}{}
	defer func() { <-t.firing }()
	r.mu.Lock()
	asked := r.settings
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.firing.Add(1)
	r.mu.Unlock()
	defer r.firing.Done()
	s, moved, err := r.settle(r.ctx, name, 0)
	switch {
	case err == nil:
		t.failures = 0
		r.set(name, s.lookAt(), asked, rank(moved))
	case weir.KindOf(err) == weir.NotFound:
		r.set(name, time.Time{}, asked, follows)
	default:
		delay := min(firstRetry<<min(t.failures, 10), maxRetry)
		t.failures++
		r.cfg.Logger.Warn("recur: schedule not run, trying again", "delay", delay, "err", err)
		r.set(name, r.cfg.Now().Add(delay), asked, leads)
	}
}

// Close stops the timers and waits, as long as ctx lasts, for what is being filed.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	for _, t := range r.timers {
		t.t.Stop()
	}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() { r.firing.Wait(); close(done) }()
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
