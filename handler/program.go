package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"weir/functions/sweep"
	"weir/internal/calendar"
	"weir/internal/clock"
	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/history"
	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/recur"
	"weir/internal/relane"
	"weir/internal/replay"
	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/telemetry"
	"weir/internal/ticket"
)

const (
	// stopTimeout is what a graceful stop may take; the host's own limit is 10 s.
	stopTimeout = 8 * time.Second
	// storageRetry is the pause before storage is asked again at start.
	storageRetry = 2 * time.Second
	// firstRetry is that pause at first; it doubles.
	firstRetry = 100 * time.Millisecond
)

// Program is the custom handler: everything wired together.
type Program struct {
	settings  Settings
	log       *slog.Logger
	account   *azure.Account
	memory    budgets
	contracts *contract.Set
	client    *cms.Client
	counter   *azure.Counter
	metrics   *telemetry.Metrics
	notified  *notify.Metrics
	calendar  *calendar.Calendar
	export    *telemetry.Export // nil = nothing is sent to a collector
	instance  string            // of the platform; empty = not on one
	host      hostWatcher       // nil = no Functions host runs this process

	began    time.Time
	opened   chan struct{}                // closed once storage is open
	ready    atomic.Pointer[http.Handler] // set then
	drainer  atomic.Pointer[drain.Drainer]
	bell     atomic.Pointer[ticket.Sender]
	runner   atomic.Pointer[recur.Runner]
	keeper   atomic.Pointer[history.Keeper]
	replays  atomic.Pointer[replay.Runner]
	notifier atomic.Pointer[notify.Sender]
	cleaner  atomic.Pointer[sweep.Cleaner]

	recorder *history.Recorder

	nudge chan struct{} // the epoch may be over
	over  chan error    // it is: the program ends
}

// NewProgram checks the settings and prepares everything that needs no connection. The
// error names every problem, one a line.
func NewProgram(env func(string) string, log *slog.Logger) (*Program, error) {
	p, problems := prepare(env, log)
	return p, errors.Join(problems.settings, problems.contracts, problems.storage, problems.cms)
}

// problems are what is wrong, by where it is to be put right.
type problems struct{ settings, contracts, storage, cms error }

// prepare makes a Program as far as the settings allow.
func prepare(env func(string) string, log *slog.Logger) (*Program, problems) {
	settings, err := loadSettings(env)
	p := &Program{settings: settings, log: log, memory: currentBudgets(), counter: &azure.Counter{},
		instance: env("WEBSITE_INSTANCE_ID"), began: time.Now(), opened: make(chan struct{}), nudge: make(chan struct{}, 1), over: make(chan error, 1)}
	p.calendar, _ = calendar.New(settings.Calendar) // what is wrong with it is among the settings' problems
	p.recorder = history.NewRecorder(time.Now, p.counter.Snapshot)
	wrong := problems{settings: errors.Join(err, p.memory.check(int64(settings.MaxBody)))}
	if len(settings.Contracts) > 0 || err == nil {
		p.contracts, wrong.contracts = contract.New(settings.Contracts,
			contract.Limits{MaxBody: int64(settings.MaxBody), Memory: p.memory.parse})
	}
	p.metrics = p.newMetrics()
	p.notified = notify.NewMetrics(p.metrics.Registry, p.eventsWaiting)
	if settings.Storage != "" || !settings.Identity.IsZero() {
		p.account, wrong.storage = azure.Open(azure.Config{ConnectionString: string(settings.Storage), Identity: settings.Identity, Prefix: settings.Prefix, Counter: p.counter})
	}
	if settings.Delivery.URL != "" {
		cfg := cms.Config{URL: settings.Delivery.URL, Method: settings.Delivery.Method, Headers: settings.headers(),
			Timeout: time.Duration(settings.Delivery.Timeout), Now: time.Now}
		if p.contracts != nil {
			cfg.SuccessRules, cfg.Answers = p.contracts.SuccessRules(), p.contracts.Answers()
		}
		p.client, wrong.cms = cms.New(cfg)
	}
	return p, wrong
}

// Run serves on the listener until ctx ends, then stops in order: no new work, drains cut
// off and handed on, answers finished. The host itself ends the handler by SIGKILL; what
// is not finished then is taken up by the watch and the sweep.
func (p *Program) Run(ctx context.Context, listener net.Listener) error {
	opening, stopOpening := context.WithCancel(ctx)
	opened := make(chan error, 1)
	go func() { opened <- p.open(opening) }()
	watching, endWatch := context.WithCancel(ctx)
	defer endWatch()
	if p.host != nil {
		go p.watchHost(watching, p.host)
	}
	server := &http.Server{Handler: p.front(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	case err = <-p.fatal(opened):
	case err = <-p.over:
	}
	stopOpening()
	return errors.Join(err, p.stop(ctx, server))
}

// fatal passes on an error of opening that trying again would not mend.
func (p *Program) fatal(opened <-chan error) <-chan error {
	out := make(chan error, 1)
	go func() {
		if err := <-opened; err != nil && !errors.Is(err, context.Canceled) {
			out <- err
		}
	}()
	return out
}

func (p *Program) stop(ctx context.Context, server *http.Server) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	background := make(chan error, 1)
	go func() { background <- closeTogether(limited, p.backgroundClosers()...) }()
	err := closeTogether(limited, p.workClosers()...)
	err = errors.Join(err, server.Shutdown(limited))
	if s := p.notifier.Load(); s != nil {
		err = errors.Join(err, s.Close(limited))
	}
	if k := p.keeper.Load(); k != nil {
		err = errors.Join(err, k.Close(limited))
	}
	if b := p.bell.Load(); b != nil {
		b.Wait(limited)
	}
	return errors.Join(err, <-background)
}

// workClosers returns the functions that end filing and delivery. They are called at the same
// time: if storage is away, the schedules must not take the time that the drains need to hand
// their lanes over.
func (p *Program) workClosers() (closers []func(context.Context) error) {
	if r := p.runner.Load(); r != nil {
		closers = append(closers, r.Close)
	}
	if d := p.drainer.Load(); d != nil {
		closers = append(closers, d.Close)
	}
	return closers
}

// backgroundClosers returns the functions that end the background work: bulk replays, and
// retention.
func (p *Program) backgroundClosers() (closers []func(context.Context) error) {
	if r := p.replays.Load(); r != nil {
		closers = append(closers, r.Close)
	}
	if c := p.cleaner.Load(); c != nil {
		closers = append(closers, c.Close)
	}
	return closers
}

// closeTogether calls all at the same time, and returns all their errors.
func closeTogether(ctx context.Context, closers ...func(context.Context) error) error {
	errs := make([]error, len(closers))
	var all sync.WaitGroup
	for i, closer := range closers {
		all.Go(func() { errs[i] = closer(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// open connects to storage, and tries until it can be reached. Meanwhile requests are held, and
// then answered with 503, so that the host does not restart the process for nothing.
func (p *Program) open(ctx context.Context) error {
	store, err := p.awaitStore(ctx)
	if err != nil {
		return err
	}
	p.start(ctx, store)
	return nil
}

// awaitStore opens storage, trying again until ctx ends.
func (p *Program) awaitStore(ctx context.Context) (*lane.Store, error) {
	for pause := firstRetry; ; pause = min(2*pause, storageRetry) {
		store, err := p.openStore(ctx)
		if err == nil || errors.Is(err, lane.ErrLanes) {
			return store, err
		}
		p.log.Warn("handler: storage not open yet", "err", err)
		if !clock.Sleep(ctx, pause) {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// openStore opens storage. If storage is in use, it only reads the record of lanes. If there is
// no table, it makes the table, the queues and the containers.
func (p *Program) openStore(ctx context.Context) (*lane.Store, error) {
	store := &lane.Store{Table: p.account.Table(), Bodies: p.account.Bodies(), Lanes: p.settings.Lanes, Now: time.Now,
		Settle: p.settings.settle()}
	err := store.Open(ctx)
	if errors.Is(err, storage.ErrGone) {
		p.log.Info("handler: no table found, so storage is new or its table was removed; the table is made")
		if err = p.account.Ensure(ctx); err == nil {
			err = store.Open(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	store.Table = watchedTable{store.Table, p.endWithoutTable}
	return store, nil
}

// start wires what needs storage, and sweeps once: whatever was left by an earlier
// process is taken up now.
func (p *Program) start(ctx context.Context, store *lane.Store) {
	bell := p.newBell(store)
	p.startNotifier(ctx, store)
	cfg := p.drainConfig(store, bell)
	cfg.Hosted = p.host != nil
	drainer := drain.New(cfg)
	p.drainer.Store(drainer)
	p.bell.Store(bell)
	routes, firstSweep := p.routes(store, bell, drainer)
	p.ready.Store(&routes)
	close(p.opened)
	p.log.Info("handler: ready", "duration", time.Since(p.began))
	go func() {
		if err := relane.Watch(ctx, store, p.nudge); err != nil {
			p.end(err)
		}
	}()
	go func() {
		if err := p.account.Ensure(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("handler: queues and containers not looked at", "err", err)
		}
	}()
	if err := firstSweep(ctx); err != nil {
		p.log.Warn("handler: first sweep incomplete", "err", err)
	}
}

func (p *Program) newBell(store *lane.Store) *ticket.Sender {
	return ticket.New(p.bellConfig(store, p.account.Tickets()))
}

func (p *Program) bellConfig(store *lane.Store, queue storage.Queue) ticket.Config {
	delay := p.settings.TicketDelay
	cfg := ticket.Config{Queue: queue, Epoch: store.Epoch, MinDelay: time.Duration(delay.Min), MaxDelay: time.Duration(delay.Max),
		NoDelay: delay.Max == 0, Now: time.Now, Log: p.log}
	if p.settings.leavesDelivery() {
		cfg.NoDelay, cfg.CountsFor = true, holderSees
	}
	return cfg
}

func (p *Program) drainConfig(store *lane.Store, bell drain.Tickets) drain.Config {
	s := p.settings
	return drain.Config{
		Store: store, Leases: p.account.Leases(), Sender: p.sender(), Tickets: bell,
		Lease: time.Duration(s.Lease), Settle: s.settle(), Attempts: s.Delivery.Attempts, Backoff: s.backoff(), Patience: time.Duration(s.Delivery.Patience),
		Rate: time.Duration(s.Delivery.Rate), AtOnce: s.Delivery.MaxConcurrent, Now: time.Now, Log: p.log,
		Observer: p.observer(), Name: p.processName(), Calendar: p.calendar,
	}
}

// end makes the process end with an error: the first one, if it is called again.
func (p *Program) end(err error) {
	select {
	case p.over <- err:
	default:
	}
}

// lookAgain has the watch look whether the epoch is over. It returns at once.
func (p *Program) lookAgain() {
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

// hostPort is the variable by which the host tells the port. It is set under a host alone.
const hostPort = "FUNCTIONS_CUSTOMHANDLER_PORT"

// listen binds the port the host names. 0, without a host, is any free one.
func listen(env func(string) string) (net.Listener, error) {
	port := env(hostPort)
	if port == "" {
		port = "0"
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, fmt.Errorf("listen on port %s: %w", port, err)
	}
	return l, nil
}
