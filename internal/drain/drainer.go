package drain

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Sender makes one attempt. It returns when the attempt is over or ctx ends, and never
// sends the same delivery twice once a byte of it was written.
type Sender interface {
	Send(ctx context.Context, d weir.Delivery) weir.Result
}

// Tickets puts tickets.
type Tickets interface {
	// EnqueueNow puts a ticket that is visible at once.
	EnqueueNow(ctx context.Context, lane int) error
}

// Config is what a Drainer works with. All fields are needed, but
// for Patience, Rate, AtOnce, Rand, NotAfter, Observer, Name, Calendar and Hosted.
type Config struct {
	Store    *lane.Store
	Leases   storage.Leases
	Sender   Sender
	Tickets  Tickets
	Lease    time.Duration // 15 to 60 s
	Settle   time.Duration // how long the CMS may still work on what it did not answer
	Attempts int           // that count, until a message is dead
	Backoff  Backoff
	Patience time.Duration // how long the CMS may answer and take nothing, until each refusal counts; 0 = a day
	Now      func() time.Time
	Rate     time.Duration  // between two attempts of this process, over all its lanes; 0 = none
	AtOnce   int            // attempts of this process at a time, over all its lanes; 0 = one for each lane
	Rand     func() float64 // 0 to 1, called concurrently; nil = math/rand
	Log      *slog.Logger
	NotAfter time.Time // no attempt begins after it; zero = no bound
	Observer Observer  // nil = nobody looks on
	Name     string    // of this process, for people
	Calendar Calendar  // nil = always open
	Hosted   bool      // by a Functions host, which may end the process while it has no invocation; see handover.go
}

// State is what a look at a lane found.
type State string

// The states of a lane, as this process sees it.
const (
	Idle    State = "idle"    // there is nothing to do
	Waiting State = "waiting" // there is, but not before Report.Until
	Busy    State = "busy"    // there is, and another process holds the lane
	Working State = "working" // this process holds the lane
)

// Report is a State with its moment.
type Report struct {
	State  State
	Until  time.Time // for Waiting
	Paused bool      // Waiting although there is something to send
	Reason string    // why, where Paused
	Err    error     // storage could not be asked, or the lane was lost; tried again soon
}

// Drainer drains the lanes of one process: at most one goroutine per lane, whatever the
// number of wakes, tickets and sweeps. Safe for concurrent use.
type Drainer struct {
	Config
	spacer      spacer
	leadTime    leadTime
	completions completions
	invocationTracker
	slots       chan struct{}   // one taken for each attempt under way; nil = no bound
	ctx         context.Context // of all that is sent
	cancel      context.CancelFunc
	openCtx     context.Context // ends first: nothing new is begun
	stopNewWork context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	workers  map[int]*laneWorker
	wg       sync.WaitGroup
}

// New makes a Drainer. Close it.
func New(cfg Config) *Drainer {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	cfg.Backoff.Rand = cfg.Rand
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	open, shut := context.WithCancel(ctx)
	d := &Drainer{Config: cfg, ctx: ctx, cancel: cancel, openCtx: open, stopNewWork: shut, invocationTracker: invocationTracker{me: cryptorand.Text()}, workers: map[int]*laneWorker{}}
	d.spacer.interval = cfg.Rate
	if cfg.AtOnce > 0 {
		d.slots = make(chan struct{}, cfg.AtOnce)
	}
	return d
}

// Wake says that the lane may have work. It returns at once.
func (d *Drainer) Wake(number int) {
	if t := d.workerOf(number); t != nil {
		t.wakeUp()
	}
}

// OfferAppended hands over messages that were filed in this lane just now, in the log's order and
// with their bodies. They are used if nothing is missing before them; everything else is
// read from the log. The caller calls WakeOffered afterwards. It returns at once.
func (d *Drainer) OfferAppended(number int, messages []weir.Message) {
	if t := d.workerOf(number); t != nil {
		t.appends.addMessages(messages)
	}
}

// WakeOffered wakes the lane if messages were offered since it was woken for offers last, so
// that each receiver of a group may call it once it has answered. It returns at once.
func (d *Drainer) WakeOffered(number int) {
	if t := d.workerOf(number); t != nil && t.appends.takeFresh() {
		t.wakeUp()
	}
}

// Join starts the lane's drain or joins it, and returns when the drain has ended, when
// the lane turns out to be idle, waiting or busy, or when ctx ends (Working).
func (d *Drainer) Join(ctx context.Context, number int) Report {
	t := d.workerOf(number)
	if t == nil {
		return Report{State: Idle}
	}
	return t.joinDrain(ctx)
}

// ErrClosed is the error of a look at a lane after Close.
var ErrClosed = errors.New("this process takes no lane any more")

// Look calls for a look at the lane, and returns as soon as it is known how the lane stands.
// Working means that this process drains it, and goes on.
func (d *Drainer) Look(ctx context.Context, number int) Report {
	t := d.workerOf(number)
	if t == nil {
		return Report{State: Waiting, Err: ErrClosed}
	}
	return t.awaitStatus(ctx)
}

// flushTime is what Close keeps of its time for the last commit and the release.
const flushTime = 3 * time.Second

// Close ends all drains: nothing new is begun, attempts under way may come to their end,
// what was decided is committed, leases are released. Attempts that would take up the last
// three seconds of ctx's time, or more than half of it, are cut off. When ctx ends first,
// the leases run out by themselves.
func (d *Drainer) Close(ctx context.Context) error {
	d.mu.Lock()
	d.isClosed = true
	d.mu.Unlock()
	d.stopNewWork()
	d.completions.endAll()
	defer d.cancel()
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		defer time.AfterFunc(max(left-flushTime, left/2), d.cancel).Stop()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// workerOf gives the lane's tender, starting one if there is none; nil after Close.
func (d *Drainer) workerOf(number int) *laneWorker {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed {
		return nil
	}
	t := d.workers[number]
	if t == nil {
		t = newLaneWorker(d, number)
		d.workers[number] = t
		d.wg.Go(t.runLoop)
	}
	return t
}

// Report returns the result of the last look at a lane: the zero value while this process drains
// the lane, and if it has not looked yet.
func (d *Drainer) Report(number int) Report {
	d.mu.Lock()
	t := d.workers[number]
	d.mu.Unlock()
	if t == nil {
		return Report{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reportedRound != t.round {
		return Report{}
	}
	return t.report
}

// drawJitter draws from 0 to d.
func (d *Drainer) drawJitter(span time.Duration) time.Duration {
	return time.Duration(d.Rand() * float64(span))
}
