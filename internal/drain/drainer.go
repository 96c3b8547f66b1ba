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

// Sender sends messages to the CMS.
type Sender interface {
	// Send makes one attempt. It returns when the attempt is over or ctx ends. Once it has written a byte of a request,
	// it does not send this request again.
	Send(ctx context.Context, d weir.Delivery) weir.Result
}

// Tickets enqueues tickets.
type Tickets interface {
	// EnqueueNow enqueues a ticket that is visible at once.
	EnqueueNow(ctx context.Context, lane int) error
}

// Config configures a Drainer. All fields are required, except Patience, Rate, AtOnce, Rand,
// NotAfter, Observer, Name, Calendar, Hosted and Remembers.
type Config struct {
	Store    *lane.Store
	Leases   storage.Leases
	Sender   Sender
	Tickets  Tickets
	Lease    time.Duration // length of a lane's lease, 15 to 60 s
	Settle   time.Duration // how long the CMS may still work on a request that it did not answer
	Attempts int           // after so many attempts that count, a message is dead
	Backoff  Backoff
	Patience time.Duration // how long the CMS may refuse all messages before refusals count as attempts; 0 = a day
	Now      func() time.Time
	Rate     time.Duration  // shortest time between two attempts of this process, over all its lanes; 0 = no limit
	AtOnce   int            // attempts of this process at a time, over all its lanes; 0 = one for each lane
	Rand     func() float64 // 0 to 1, called concurrently; nil = math/rand
	Log      *slog.Logger
	NotAfter time.Time // no attempt begins after it; zero = no bound
	Observer Observer  // nil = none
	Name     string    // name of this process, for operators
	Calendar Calendar  // nil = always open
	Hosted   bool      // the host may end the process while it has no invocation; see handover.go
	// Remembers reports whether the attempts of a contract's messages use remembered ids; nil = none does.
	Remembers func(contract string) bool
}

// State is the state of a lane at a look.
type State string

// The states of a lane, as this process sees it.
const (
	Idle    State = "idle"    // there is no work, or the Drainer is closed
	Waiting State = "waiting" // this process looks again at Report.Until, for later work or after a failure
	Busy    State = "busy"    // another process holds or claims the lane, or this process takes none (StopTaking)
	Working State = "working" // this process holds the lane
)

// Report is the result of a look at a lane.
type Report struct {
	State  State
	Until  time.Time // if Waiting: when this process looks again, unless woken before; zero after ErrClosed
	Paused bool      // Waiting, and the lane is paused or the calendar is closed
	Reason string    // if Paused: the reason, for operators
	Err    error     // storage failed, the lane was lost, or ErrClosed

	// HolderFence is the fence of the process that holds the lane, or that crashed while it held the lane. 0 = there is
	// no such process, State is Working, or the look failed. HolderFence may be set if State is Idle or Waiting,
	// because a holder stays for a while when the lane has no work.
	HolderFence int64
	isLeft      bool // State is Busy because this process takes no lane; perhaps no process holds the lane
}

// Drainer drains the lanes of one process. It has one worker for each lane, however many wakes, tickets and sweeps
// come. It is safe for concurrent use.
type Drainer struct {
	Config
	spacer      spacer
	leadTime    leadTime
	completions completions
	invocationTracker
	slots       chan struct{}   // has one value for each attempt under way; nil = no bound
	ctx         context.Context // the context of all work; its end cuts attempts off
	cancel      context.CancelFunc
	openCtx     context.Context // ends before ctx, or with it; from its end on no new work begins
	stopNewWork context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	workers  map[int]*laneWorker
	wg       sync.WaitGroup
}

// New returns a Drainer. The caller closes it.
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
	d := &Drainer{Config: cfg, ctx: ctx, cancel: cancel, openCtx: open, stopNewWork: shut,
		invocationTracker: invocationTracker{me: cryptorand.Text()}, workers: map[int]*laneWorker{}}
	d.spacer.interval = cfg.Rate
	if cfg.AtOnce > 0 {
		d.slots = make(chan struct{}, cfg.AtOnce)
	}
	return d
}

// Wake is called when the lane may have work. It returns at once.
func (d *Drainer) Wake(number int) {
	if t := d.workerOf(number); t != nil {
		t.wakeUp()
	}
}

// OfferAppended hands over messages that were just filed in a lane, in the log's order and with their bodies. The
// holder uses them if it has read all messages before them in the log. Otherwise it reads them from the log, too. The
// caller calls WakeOffered afterwards. OfferAppended returns at once.
func (d *Drainer) OfferAppended(number int, messages []weir.Message) {
	if t := d.workerOf(number); t != nil {
		t.appends.addMessages(messages)
	}
}

// WakeOffered wakes the lane if messages were offered since the last call of WakeOffered for this lane. So if messages
// were filed together, the receiver of each may call WakeOffered after its answer: only the first call wakes the lane.
// It returns at once.
func (d *Drainer) WakeOffered(number int) {
	if t := d.workerOf(number); t != nil && t.appends.takeFresh() {
		t.wakeUp()
	}
}

// Join starts the lane's drain, or joins the drain that is under way. It returns when the drain has ended, when the
// lane turns out to be idle, waiting or busy, or when ctx ends (Working). After Close it starts no drain, but still
// waits for the end of one that is under way. Otherwise an invocation that follows the lanes of this process (Held)
// would join their drains again and again, without a pause, until the drains have ended.
func (d *Drainer) Join(ctx context.Context, number int) Report {
	t := d.workerOf(number)
	if t == nil {
		t = d.startedWorkerOf(number)
	}
	if t == nil {
		return Report{State: Idle}
	}
	return t.joinDrain(ctx)
}

// ErrClosed is the error in the report of Look and Claim after Close.
var ErrClosed = errors.New("this process takes no lane any more")

// Look calls for a look at the lane, and returns as soon as the lane's state is known, or when ctx ends (Working).
// Except at the end of ctx, Working means that this process drains the lane, and goes on after Look has returned.
func (d *Drainer) Look(ctx context.Context, number int) Report {
	t := d.workerOf(number)
	if t == nil {
		return Report{State: Waiting, Err: ErrClosed}
	}
	return t.awaitStatus(ctx)
}

// flushTime is the time that Close keeps for the last commits and for the release of the leases. If Close has less than
// twice that time, it keeps half of its time.
const flushTime = 3 * time.Second

// Close ends all drains: no new work is begun, attempts under way may end, outcomes are committed, leases are released.
// It cuts attempts off before the deadline of ctx; see flushTime. If ctx ends first, Close returns its error, and
// leases that were not released run out by themselves.
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

// workerOf returns the lane's worker, starting one if there is none; nil after Close.
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

// startedWorkerOf returns the lane's worker, also after Close; nil if there is none.
func (d *Drainer) startedWorkerOf(number int) *laneWorker {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[number]
}

// Report returns the result of the last look at a lane. It returns the zero value while this process looks at the lane
// or drains it, and if this process has not looked at it yet.
func (d *Drainer) Report(number int) Report {
	t := d.startedWorkerOf(number)
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

// drawJitter returns a random duration from 0 to span.
func (d *Drainer) drawJitter(span time.Duration) time.Duration {
	return time.Duration(d.Rand() * float64(span))
}
