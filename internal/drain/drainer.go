package drain

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/limiter"
	"weir/internal/residence"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Sender sends messages to the CMS.
type Sender interface {
	// Send makes one attempt, and returns when the attempt is over or ctx ends. After it has
	// written a byte of a request, it does not send that request again.
	Send(ctx context.Context, d weir.Delivery) weir.Result
}

// Tickets enqueues tickets.
type Tickets interface {
	// EnqueueNow enqueues a ticket for a lane. The ticket is visible at once.
	EnqueueNow(ctx context.Context, lane int) error
}

// Config configures a Drainer. All fields are required, except Patience, RetryFor, Brake, Limiter,
// Requests, AtOnce, Rand, NotAfter, Observer, Name, Calendar, Permit and Remembers.
type Config struct {
	Store    *lane.Store
	Leases   storage.Leases
	Sender   Sender
	Tickets  Tickets
	Lease    time.Duration // length of a lane's lease, 15 to 60 s
	Settle   time.Duration // how long the CMS may still work on a request that got no answer
	Attempts int           // a message is dead after this number of counted attempts, see RetryFor
	Backoff  Backoff
	// how long the CMS may refuse all messages before refusals count as attempts; 0 = a day
	Patience time.Duration
	Now      func() time.Time
	// Limiter gives each attempt its slots, and its requests to the CMS must use it, too; nil = the
	// rate has no limit.
	Limiter *limiter.Limiter
	// Requests returns the largest number of requests that an attempt of a contract's message needs,
	// as a rule; nil = one. It is used with a Limiter.
	Requests func(contract string) int
	// most attempts at a time, over all lanes of this process; 0 = one for each lane
	AtOnce   int
	Rand     func() float64 // returns 0 to 1, is called concurrently; nil = math/rand
	Log      *slog.Logger
	NotAfter time.Time         // no attempt begins after this time; zero = no bound
	Observer Observer          // nil = none
	Name     string            // name of this process, for operators
	Calendar Calendar          // nil = always open
	Permit   *residence.Permit // nil = no Functions host; the process may always hold lanes
	// RetryFor returns the least time between the first and the last of the attempts that make a
	// contract's message dead without a verdict; nil = no contract has such a time. See
	// outcome_recorder.go.
	RetryFor func(contract string) time.Duration
	// Brake is the number of keys whose messages die of the same rejection, with no delivery of
	// their contract between, until further such messages wait; 0 = all die. See brake.go.
	Brake int
	// Memory bounds the bytes of the bodies that all lanes have in memory, except for those of
	// bodyPrefetch; see laneMemory. 0 = 128 MiB.
	Memory int64
	// Remembers reports whether the attempts of a contract's messages use remembered ids; nil = no
	// contract does.
	Remembers func(contract string) bool
}

// State is the state of a lane, as this process saw it at its last look.
type State string

// The states of a lane.
const (
	Idle State = "idle" // there is no work, or the Drainer is closed
	// no work can be done now, or a look failed; the next look is at Report.Until
	Waiting State = "waiting"
	// another process holds or claims the lane, or this process takes no lane (StopTaking)
	Busy    State = "busy"
	Working State = "working" // this process holds the lane
)

// Report is the result of a look at a lane. In a look this process reads the control rows, and
// drains the lane if there is work that can be done now.
type Report struct {
	State State
	// if Waiting: time of the next look, unless a wake comes earlier; zero if Err is ErrClosed
	Until  time.Time
	Paused bool   // Waiting because the lane is paused or the calendar is closed
	Reason string // if Paused: the reason, for operators
	Err    error  // storage failed, the lane was lost, or ErrClosed

	// HolderFence is the fence of the process that holds the lane, or that crashed while it held
	// the lane. It is 0 if there is no such process, if State is Working, or if the look failed. A
	// lane without work can have a holder, because a holder lingers at an empty lane.
	HolderFence int64
	isLeft      bool // State is Busy only because this process takes no lane; the lane may be free
	hasBrakes   bool // messages of the lane wait for a brake; see brake.go
	isForCMS    bool // Paused for the CMS, and a recovery can end the pause; see outlook.go
}

// Drainer drains the lanes of one process. It has one worker for each lane, however many wakes,
// tickets and sweeps come. It is safe for concurrent use.
type Drainer struct {
	Config
	outlook     *outlook
	brakes      *brakes
	leadTime    leadTime
	completions completions
	me          string              // the name under which this process claims lanes
	seats       *semaphore.Weighted // see Config.AtOnce; each attempt under way takes one
	ctx         context.Context     // the context of all work; its end cuts attempts off
	cancel      context.CancelFunc
	// ends before ctx or together with ctx; after its end no new work begins
	openCtx     context.Context
	stopNewWork context.CancelFunc

	prefetchRoom *semaphore.Weighted // see bodyPrefetch
	memory       *laneMemory

	mu       sync.Mutex
	isClosed bool
	workers  map[int]*laneWorker
	wg       sync.WaitGroup
}

// retryFor returns the least time for which a message is tried, see Config.RetryFor.
func (d *Drainer) retryFor(e *lane.Entry) time.Duration {
	if d.RetryFor == nil {
		return 0
	}
	return d.RetryFor(e.Message.Contract)
}

// New returns a Drainer. The caller must call Close.
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
		me: cryptorand.Text(), workers: map[int]*laneWorker{},
		prefetchRoom: newPrefetchRoom(), memory: newLaneMemory(cfg.Memory)}
	d.outlook = newOutlook(cfg.Backoff)
	d.brakes = newBrakes(cfg.Brake, cfg.Patience, cfg.Backoff)
	d.seats = semaphore.NewWeighted(math.MaxInt64)
	if cfg.AtOnce > 0 {
		d.seats = semaphore.NewWeighted(int64(cfg.AtOnce))
	}

	return d
}

// Wake tells the Drainer that the lane may have work. It returns at once.
func (d *Drainer) Wake(number int) {
	if t := d.workerOf(number); t != nil {
		t.wake.send()
	}
}

// noLane is the number of no lane.
const noLane = -1

// wakeOthers wakes the workers of all lanes, except one, that may have a reason to look.
func (d *Drainer) wakeOthers(except int, hasReason func(*laneWorker) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for number, t := range d.workers {
		if number != except && hasReason(t) {
			t.wake.send()
		}
	}
}

// OfferAppended hands over messages that this process has just appended to the lane, in the order
// of the log and with their bodies. If this process holds the lane, it need not read these messages
// from the log. The caller calls WakeOffered afterwards. OfferAppended returns at once.
func (d *Drainer) OfferAppended(number int, messages []weir.Message) {
	if t := d.workerOf(number); t != nil {
		t.appends.addMessages(messages)
	}
}

// WakeOffered wakes the lane if messages were offered since the last call of WakeOffered for this
// lane. If several posts were appended together, the handler of each post can call WakeOffered
// after it has answered: only the first of these calls wakes the lane. WakeOffered returns at once.
func (d *Drainer) WakeOffered(number int) {
	if t := d.workerOf(number); t != nil && t.appends.takeFresh() {
		t.wake.send()
	}
}

// Join starts the lane's drain, or joins the drain that is under way. It returns when the drain has
// ended, when the lane turns out to be idle, waiting or busy, or when ctx ends. If ctx ends first,
// the State of the Report is Working.
//
// After Close, Join starts no drain, but still waits for the end of a drain that is under way. A
// caller can call Join in a loop while this process holds lanes. If Join returned at once, the loop
// would run without a pause.
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

// Look makes this process look at the lane. It returns when the state of the lane is known, or when
// ctx ends. If ctx ends first, the State of the Report is Working. Otherwise Working means that
// this process drains the lane. The drain goes on after Look has returned.
func (d *Drainer) Look(ctx context.Context, number int) Report {
	t := d.workerOf(number)
	if t == nil {
		return Report{State: Waiting, Err: ErrClosed}
	}
	return t.awaitStatus(ctx)
}

// flushTime is the time that Close reserves for the last commits and for the release of the leases.
// If Close has less than twice flushTime, it reserves half of its time.
const flushTime = 3 * time.Second

// Close ends all drains: it begins no new attempt, waits for the attempts under way, commits the
// outcomes and releases the leases. Shortly before the deadline of ctx it cuts attempts off; see
// flushTime. If ctx ends first, Close returns the cause of ctx, and leases that were not released
// expire later.
func (d *Drainer) Close(ctx context.Context) error {
	d.mu.Lock()
	d.isClosed = true
	d.mu.Unlock()
	d.stopNewWork()
	d.completions.endAll()
	defer d.cancel()

	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		defer time.AfterFunc(max(left-flushTime, left/2), d.cancel).Stop()
	}

	return clock.WaitFor(ctx, &d.wg)
}

// workerOf returns the lane's worker, and starts the worker if there is none. After Close it
// returns nil.
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

// Report returns the result of the last look at a lane. It returns the zero value if this process
// has not looked at the lane yet, or is looking at the lane or draining it now.
func (d *Drainer) Report(number int) Report {
	t := d.startedWorkerOf(number)
	if t == nil {
		return Report{}
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reportedLook != t.looks {
		return Report{}
	}

	return t.report
}

// drawJitter returns a random duration from 0 to span.
func (d *Drainer) drawJitter(span time.Duration) time.Duration {
	return time.Duration(d.Rand() * float64(span))
}

// completions notifies callers that wait for messages to become final. The zero value is ready.
// completions is safe for concurrent use.
type completions struct {
	mu      sync.Mutex
	waiting map[messageRef]map[chan struct{}]bool // the channels of the callers, by message
}

// messageRef names a message of this epoch.
type messageRef struct {
	lane int
	seq  int64
}

// AwaitFinal returns a channel that is closed when this process commits the final stage of the
// message, or when Close is called. A commit by another process does not close the channel. The
// caller calls the returned function when its wait is over.
func (d *Drainer) AwaitFinal(id weir.ID) (<-chan struct{}, func()) {
	f, ref, ch := &d.completions, messageRef{id.Lane, id.Seq}, make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil {
		f.waiting = map[messageRef]map[chan struct{}]bool{}
	}

	if f.waiting[ref] == nil {
		f.waiting[ref] = map[chan struct{}]bool{}
	}

	f.waiting[ref][ch] = true

	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.waiting[ref], ch); len(f.waiting[ref]) == 0 {
			delete(f.waiting, ref)
		}
	}
}

// endAll closes all channels, because the Drainer is being closed.
func (f *completions) endAll() {
	f.mu.Lock()
	defer f.mu.Unlock()

	for ref, all := range f.waiting {
		for ch := range all {
			close(ch)
		}
		delete(f.waiting, ref)
	}
}

// notifyFinal closes the channels of callers that wait for the given messages of a lane.
func (f *completions) notifyFinal(lane int, seqs []int64) {
	if len(seqs) == 0 {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	for _, seq := range seqs {
		ref := messageRef{lane, seq}
		for ch := range f.waiting[ref] {
			close(ch)
		}
		delete(f.waiting, ref)
	}
}

// laneScope has the values that the parts of a session share.
type laneScope struct {
	store    *lane.Store
	lane     int
	fence    int64
	now      func() time.Time
	log      *slog.Logger
	observer Observer
}

// reportFinal notifies the observer that the holder has decided to make a message final.
func (s laneScope) reportFinal(e *lane.Entry, stage weir.Stage, at time.Time) {
	s.observer.Finished(s.lane, Final{Stage: stage, Contract: e.Message.Contract,
		AcceptedAt: e.Message.AcceptedAt, Since: e.WaitingSince(), At: at})
}

// journal hands the decisions of a session to its committer.
type journal struct {
	*committer
	saveProgress func(*lane.Change) // see session.saveProgress
}

// record adds the session's progress to a change, and hands the change to the committer. An urgent
// change is committed at once.
func (j *journal) record(ch *lane.Change, urgent bool) {
	j.saveProgress(ch)
	j.addChange(ch, urgent)
}

// isFull reports whether so many changes are uncommitted that no further message may be parked.
// More parked messages would take more memory, and would delay requests, because requests wait for
// these commits.
func (j *journal) isFull() bool { return j.countPending() >= maxParked }

// Observer gets the events of this process's drains, for metrics. Its methods are called
// concurrently, and must return at once, because deliveries wait for them.
type Observer interface {
	// Attempted is called after each attempt that has begun, even if it sent no request.
	// outcome is the outcome that counts for the message. It can differ from r.Outcome, for example
	// if the CMS refuses all messages.
	Attempted(lane int, m *weir.Message, r weir.Result, outcome weir.Outcome)
	// Finished is called when the holder has decided that a message is final. If the commit of the
	// decision fails, another holder decides anew.
	Finished(lane int, f Final)
	// Lease is called for each event of a lane's lease.
	Lease(lane int, event LeaseEvent)
}

// Final describes a message that the holder decided to be final.
type Final struct {
	Stage      weir.Stage
	Contract   string    // "" for a superseded message that the holder has not read
	AcceptedAt time.Time // zero for a superseded message that the holder has not read
	// the latest of acceptance, due time and replay request; zero if AcceptedAt is zero
	Since time.Time
	At    time.Time
}

// LeaseEvent is an event of a lane's lease.
type LeaseEvent string

// The events of leases.
const (
	LeaseTaken    LeaseEvent = "taken"
	LeaseBusy     LeaseEvent = "busy"     // another process has the lease
	LeaseReleased LeaseEvent = "released" // this process is about to release the lease
	// this process can no longer trust the lease, or another holder has the lane
	LeaseLost LeaseEvent = "lost"
)

// noObserver is the Observer if none is set.
type noObserver struct{}

func (noObserver) Attempted(int, *weir.Message, weir.Result, weir.Outcome) {}
func (noObserver) Finished(int, Final)                                     {}
func (noObserver) Lease(int, LeaseEvent)                                   {}

// defaultMemory is Config.Memory if it is 0.
const defaultMemory = 128 << 20

// laneMemory bounds the bodies that all lanes of a process have in memory. It has six equal parts:
//
//   - Pages of the log that are being read. If there is no room for a page, the holder reads it
//     without bodies, and reads each body before it sends the message.
//   - Bodies of messages that wait: in the read-ahead, in keys' queues, and for a retry. Each open
//     session has the same share of each of these three parts.
//   - Recent appends. If there is no room, the holder reads the messages from the log.
//   - Bodies under way to the CMS. If there is no room, a message waits for that of other lanes, in
//     order.
//
// Only the last part makes a lane wait, and it waits for attempts alone, which end. So no lane
// waits for ever.
type laneMemory struct {
	part     int64
	sessions atomic.Int64
	pages    *semaphore.Weighted
	appends  *semaphore.Weighted
	underWay *semaphore.Weighted
}

func newLaneMemory(total int64) *laneMemory {
	if total <= 0 {
		total = defaultMemory
	}
	part := max(total/6, 1)
	return &laneMemory{part: part, pages: semaphore.NewWeighted(part),
		appends: semaphore.NewWeighted(part), underWay: semaphore.NewWeighted(part)}
}

// beginSession counts an open session until end is called.
func (m *laneMemory) beginSession() (end func()) {
	m.sessions.Add(1)
	return func() { m.sessions.Add(-1) }
}

// shareOf returns the bytes of one part that a lane may have in memory, at most the argument
// "most".
func (m *laneMemory) shareOf(most int) int {
	if m == nil { // in tests of single parts
		return most
	}
	return int(min(int64(most), m.part/max(m.sessions.Load(), 1)))
}

// reservePage reserves room for a page of the log with bodies. It returns nil if there is none.
func (m *laneMemory) reservePage(rows int) (release func()) {
	if m == nil {
		return func() {}
	}

	weight := min(int64(rows)*maxRowBytes, maxPageBytes, m.part)
	if !m.pages.TryAcquire(weight) {
		return nil
	}

	return func() { m.pages.Release(weight) }
}

// reserveUnderWay waits until there is room for the body of a message that is to be sent.
func (m *laneMemory) reserveUnderWay(ctx context.Context, e *lane.Entry) (release func(),
	err error) {
	weight := min(int64(e.Message.Size), m.part)
	if err := m.underWay.Acquire(ctx, weight); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.underWay.Release(weight) }, nil
}
