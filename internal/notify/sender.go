package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"weir/internal/clock"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/outbox"
	"weir/internal/storage"
)

const (
	// These constants bound the requests in flight.
	maxPerHost    = 2 // requests of one lane to each host
	maxPerLane    = 8
	maxPerProcess = 32
	// leaseLength is the length of an outbox's lease.
	leaseLength = 30 * time.Second
)

// Observer counts tries, for metrics. Notified is called concurrently, and must not block.
type Observer interface {
	// Notified records the outcome of a try to send an event, or the removal of an event without a
	// try. The argument "event" is the event's type, and "outcome" is one of Outcomes.
	Notified(event, outcome string)
}

// Outcomes are the outcomes that an Observer can get.
var Outcomes = []string{outcomeTold, outcomeRetry, outcomeGone, outcomeGivenUp, outcomeDropped}

const (
	outcomeTold    = "told"     // the receiver answered 2xx
	outcomeRetry   = "retry"    // the try failed, and another one follows
	outcomeGone    = "gone"     // the receiver answered 410
	outcomeGivenUp = "given_up" // all tries within giveUpAfter failed
	// the receiver is no longer in the settings, or the message was removed
	outcomeDropped = "dropped"
)

type discardObserver struct{}

func (discardObserver) Notified(string, string) {}

// Config configures a Sender. All fields are required, except Rand, Observer and Transport.
type Config struct {
	Store     *lane.Store
	Leases    storage.Leases
	Receivers []Receiver
	Callbacks Callbacks
	Now       func() time.Time
	Log       *slog.Logger
	// returns a number from 0 to 1; called concurrently; nil = math/rand
	Rand     func() float64
	Observer Observer // nil = no observer
	// nil = the network; private addresses are refused unless the settings allow them
	Transport http.RoundTripper
}

// Sender sends the events of outboxes. WakeOutbox and ScanEarlierEpochs tell it which outboxes can
// have events. A Sender is safe for concurrent use.
type Sender struct {
	Config
	receiverByName map[string]Receiver
	publicClient   *http.Client // refuses private addresses
	anyClient      *http.Client
	backoffs       hostBackoffs
	slots          chan struct{}
	ctx            context.Context // the context of all requests
	cancel         context.CancelFunc
	startCtx       context.Context // no new request starts after the end of startCtx
	stopStarting   context.CancelFunc

	mu       sync.Mutex
	isClosed bool
	workers  map[outboxID]*outboxWorker
	changed  chan struct{} // closed and replaced when a worker begins to wait, or stops
	wg       sync.WaitGroup
}

type outboxID struct{ epoch, lane int }

func outboxOf(s *lane.Store, number int) outbox.Outbox {
	return outbox.Outbox{Table: s.Table, Partition: s.Partition(number)}
}

// New returns a Sender. The caller must Close it.
func New(cfg Config) *Sender {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}

	if cfg.Observer == nil {
		cfg.Observer = discardObserver{}
	}

	s := &Sender{Config: cfg, receiverByName: map[string]Receiver{},
		slots:   make(chan struct{}, maxPerProcess),
		workers: map[outboxID]*outboxWorker{}, changed: make(chan struct{})}
	for _, r := range cfg.Receivers {
		s.receiverByName[r.rowName()] = r
	}

	if cfg.Transport != nil {
		s.publicClient, s.anyClient = newClient(cfg.Transport), newClient(cfg.Transport)
	} else {
		s.publicClient, s.anyClient = newClient(newTransport(false)), newClient(newTransport(true))
	}

	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.startCtx, s.stopStarting = context.WithCancel(s.ctx)

	return s
}

// DeadReceivers implements lane.Notifier: it returns the names of the receivers of message.dead for
// a contract.
func (s *Sender) DeadReceivers(contract string) []string {
	var names []string
	for _, r := range s.Receivers {
		if r.wantsEvent(MessageDead) && r.wantsContract(contract) {
			names = append(names, r.rowName())
		}
	}
	return names
}

// WakeOutbox implements lane.Notifier: it wakes or starts the worker of a lane's outbox.
func (s *Sender) WakeOutbox(number int) { s.wakeWorker(outboxID{s.Store.Epoch, number}) }

func (s *Sender) wakeWorker(at outboxID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return
	}

	d := s.workers[at]
	if d == nil {
		d = &outboxWorker{sender: s, outbox: at, store: s.Store, wake: make(chan struct{}, 1),
			lines: newLines()}
		if at.epoch != s.Store.Epoch {
			d.store = s.Store.ForEpoch(epochs.Epoch{Number: at.epoch})
		}

		d.rows = outboxOf(d.store, at.lane)
		s.workers[at] = d
		s.wg.Go(d.run)
	}

	select {
	case d.wake <- struct{}{}:
	default:
	}

	d.isResting = false
}

// ScanEarlierEpochs starts a worker for each outbox of an earlier epoch that can still have events.
// One successful call for each process is enough, because no process adds events to these outboxes.
func (s *Sender) ScanEarlierEpochs(ctx context.Context) error {
	var failed error
	for _, e := range s.Store.EarlierEpochs {
		err := lane.ForEach(e.Lanes, func(number int) error {
			c, err := s.Store.ForEpoch(e).ReadControl(ctx, number)
			if storage.Is(err, storage.NotFound) {
				return nil
			}

			if outbox.MarkerOf(c) != "" {
				s.wakeWorker(outboxID{e.Number, number})
			}

			return err
		})
		if err != nil {
			failed = err
		}
	}

	return failed
}

// resolveEndpoint returns the endpoint of an event. It returns false if the settings no longer have
// the receiver, or no longer allow the callback's address.
func (s *Sender) resolveEndpoint(m outbox.Event) (endpoint, bool) {
	t, private := endpoint{url: m.URL, secret: s.Callbacks.secretFor(m.URL)},
		s.Callbacks.AllowPrivate
	if m.Receiver == outbox.CallbackTo {
		if s.Callbacks.Check(m.URL) != nil {
			return endpoint{}, false
		}
	} else {
		r, known := s.receiverByName[m.Receiver]
		if !known {
			return endpoint{}, false
		}
		t.url, t.secret, private = r.URL, r.Secret, r.AllowPrivate
	}

	u, err := url.Parse(t.url)
	if err != nil {
		return endpoint{}, false
	}

	t.host, t.client = hostPort(u), s.publicClient
	if private {
		t.client = s.anyClient
	}

	return t, true
}

// Waiting returns the approximate number of events in all outboxes that have a worker in this
// process.
func (s *Sender) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, d := range s.workers {
		n += d.rowsSeen
	}
	return n
}

// WaitIdle waits until no worker has an event to send now, or until ctx ends.
func (s *Sender) WaitIdle(ctx context.Context) {
	for {
		s.mu.Lock()
		changed, busy := s.changed, false
		for _, d := range s.workers {
			busy = busy || !d.isResting
		}

		s.mu.Unlock()
		if !busy {
			return
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Close stops the Sender: no new request starts. Close waits until the results of the requests in
// flight are saved. When half of the time until ctx's deadline is over, it cancels these requests.
// All unsent events stay in the outboxes. If ctx ends before all workers have stopped, Close
// returns the cause of ctx.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	s.isClosed = true
	s.mu.Unlock()
	s.stopStarting()
	defer s.cancel()
	defer s.publicClient.CloseIdleConnections()
	defer s.anyClient.CloseIdleConnections()
	if deadline, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(deadline)/2, s.cancel).Stop()
	}

	return clock.WaitFor(ctx, &s.wg)
}
