package notify

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

const (
	// perHost, perLane and perProcess bound what is on its way at a time.
	perHost    = 2
	perLane    = 8
	perProcess = 32
	// leaseLength is that of the lease under which an outbox is emptied.
	leaseLength = 30 * time.Second
)

// Observer is told what becomes of events, for metrics. It must return at once.
type Observer interface {
	// Notified tells of a try, or of an event that was given up: its type, and one of
	// Outcomes.
	Notified(event, outcome string)
}

// Outcomes are what Observer is told.
var Outcomes = []string{outcomeTold, outcomeRetry, outcomeGone, outcomeGivenUp, outcomeDropped}

const (
	outcomeTold    = "told"
	outcomeRetry   = "retry"
	outcomeGone    = "gone"     // the receiver answered 410
	outcomeGivenUp = "given_up" // it was tried for too long
	outcomeDropped = "dropped"  // there is no such receiver any more, or no such message
)

type unobserved struct{}

func (unobserved) Notified(string, string) {}

// Config is what a Sender works with. All fields are needed, but for Rand, Observer and
// Transport.
type Config struct {
	Store     *lane.Store
	Leases    storage.Leases
	Receivers []Receiver
	Callbacks Callbacks
	Now       func() time.Time
	Log       *slog.Logger
	Rand      func() float64    // 0 to 1, called concurrently; nil = math/rand
	Observer  Observer          // nil = nobody looks on
	Transport http.RoundTripper // nil = the network's, guarded where it has to be
}

// Sender empties the outboxes of all lanes, as far as this process has heard of mail in
// them. Safe for concurrent use.
type Sender struct {
	Config
	byName  map[string]Receiver
	guarded *http.Client // to public addresses only
	free    *http.Client
	hosts   hosts
	slots   chan struct{}
	ctx     context.Context // of all that is sent
	cancel  context.CancelFunc
	open    context.Context // ends first: nothing new is begun
	shut    context.CancelFunc

	mu      sync.Mutex
	closed  bool
	desks   map[place]*desk
	changed chan struct{} // closed and replaced when a desk comes to rest
	wg      sync.WaitGroup
}

// place names an outbox.
type place struct{ epoch, lane int }

// New makes a Sender. Close it.
func New(cfg Config) *Sender {
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Observer == nil {
		cfg.Observer = unobserved{}
	}
	s := &Sender{Config: cfg, byName: map[string]Receiver{}, slots: make(chan struct{}, perProcess), desks: map[place]*desk{}, changed: make(chan struct{})}
	for _, r := range cfg.Receivers {
		s.byName[r.name()] = r
	}
	if cfg.Transport != nil {
		s.guarded, s.free = newClient(cfg.Transport), newClient(cfg.Transport)
	} else {
		s.guarded, s.free = newClient(newTransport(false)), newClient(newTransport(true))
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.open, s.shut = context.WithCancel(s.ctx)
	return s
}

// Dead implements lane.Mailer.
func (s *Sender) Dead(contract string) []string {
	var names []string
	for _, r := range s.Receivers {
		if r.wants(MessageDead) && r.wantsContract(contract) {
			names = append(names, r.name())
		}
	}
	return names
}

// Nudge implements lane.Mailer.
func (s *Sender) Nudge(number int) { s.nudge(place{s.Store.Epoch, number}) }

func (s *Sender) nudge(at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	d := s.desks[at]
	if d == nil {
		d = &desk{s: s, at: at, store: s.Store, wake: make(chan struct{}, 1)}
		if at.epoch != s.Store.Epoch {
			d.store = s.Store.In(lane.Epoch{Epoch: at.epoch})
		}
		s.desks[at] = d
		s.wg.Go(d.work)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
	d.resting = false
}

// Recall looks once for mail that was left in earlier epochs. Nobody writes there any more
// but senders, so nothing comes later.
func (s *Sender) Recall(ctx context.Context) error {
	var failed error
	for _, e := range s.Store.Earlier {
		err := lane.Each(e.Lanes, func(number int) error {
			c, err := s.Store.In(e).Control(ctx, number)
			if storage.Is(err, storage.NotFound) {
				return nil
			}
			if c.Mail() != "" {
				s.nudge(place{e.Epoch, number})
			}
			return err
		})
		if err != nil {
			failed = err
		}
	}
	return failed
}

// target is where a mail goes; false when its receiver is not there any more, or may not be
// told any more.
func (s *Sender) target(m lane.Mail) (target, bool) {
	t, private := target{url: m.URL, secret: s.Callbacks.Secret}, s.Callbacks.AllowPrivate
	if m.To == lane.CallbackTo {
		if s.Callbacks.Check(m.URL) != nil {
			return target{}, false
		}
	} else {
		r, known := s.byName[m.To]
		if !known {
			return target{}, false
		}
		t.url, t.secret, private = r.URL, r.Secret, r.AllowPrivate
	}
	u, err := url.Parse(t.url)
	if err != nil {
		return target{}, false
	}
	t.host, t.client = hostPort(u), s.guarded
	if private {
		t.client = s.free
	}
	return t, true
}

// Waiting is about how many events wait in the outboxes that this process looks after.
func (s *Sender) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, d := range s.desks {
		n += d.waiting
	}
	return n
}

// Settle waits until everything that is due has been tried, or ctx ends.
func (s *Sender) Settle(ctx context.Context) {
	for {
		s.mu.Lock()
		changed, busy := s.changed, false
		for _, d := range s.desks {
			busy = busy || !d.resting
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

// Close ends all sending: nothing new is begun, what is on its way may come to its end and is
// written down, for up to half of ctx's time. What is left stays in the outboxes.
func (s *Sender) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.shut()
	defer s.cancel()
	defer s.guarded.CloseIdleConnections()
	defer s.free.CloseIdleConnections()
	if deadline, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(deadline)/2, s.cancel).Stop()
	}
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
