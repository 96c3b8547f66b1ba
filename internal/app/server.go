package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/relane"
	"weir/internal/residence"
)

// stopTimeout limits a graceful stop. It is shorter than the host's own limit of 10 s.
const stopTimeout = 8 * time.Second

// Server serves a Functions host, or clients without one (standalone).
type Server struct {
	*App
	startedAt time.Time
	host      residence.Host // nil = no Functions host started this process
	alone     *standalone    // stands in for a Functions host; nil = a host may call this process
	opened    chan struct{}  // closed when storage is open and App.running is set

	epochChecks chan struct{} // each value makes watchEpoch check whether the epoch is over
	fatal       chan error    // an error ends the server

	triggers sync.WaitGroup // what startTriggers has started
}

func newServer(a *App, startedAt time.Time) *Server {
	return &Server{App: a, startedAt: startedAt, opened: make(chan struct{}),
		epochChecks: make(chan struct{}, 1), fatal: make(chan error, 1)}
}

// Run serves on the listener until ctx ends or an error ends the server. Then it stops the parts of
// the server. If the host kills the process during the stop, other processes finish the work of
// this process.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	opening, stopOpening := context.WithCancel(ctx)
	defer stopOpening()
	go func() {
		err := panics.Catch(func() error { return s.open(opening) })
		if err != nil && !errors.Is(err, context.Canceled) {
			s.endWith(err)
		}
	}()

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	if s.host != nil {
		go s.newHostWatch(s.host).Run(watching)
	}

	server := &http.Server{Handler: s.newHandler(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
	serve := server.Serve
	if s.alone != nil {
		s.alone.configure(server)
		serve = func(l net.Listener) error { return s.alone.serve(server, l) }
	}

	served := make(chan error, 1)
	go func() { served <- panics.Catch(func() error { return serve(listener) }) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	case err = <-s.fatal:
	case err = <-s.broken:
	}

	stopOpening()

	return errors.Join(err, s.stop(ctx, server))
}

// endWith ends the server with an error. Later calls have no effect.
func (s *Server) endWith(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// stop stops schedules and deliveries first, then the HTTP server, and then the parts that
// closeRecords closes. During these three steps, closeBackground stops the background work.
func (s *Server) stop(ctx context.Context, server *http.Server) error {
	if s.crashGuard != nil {
		s.crashGuard.Stop()
	}

	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	r := s.running.Load()
	if r == nil {
		return server.Shutdown(limited)
	}

	background := make(chan error, 1)
	go func() {
		background <- panics.Catch(func() error { return r.closeBackground(limited) })
	}()
	err := errors.Join(r.closeWork(limited), s.stopTriggers(limited))
	err = errors.Join(err, server.Shutdown(limited))
	err = errors.Join(err, r.closeRecords(limited))

	return errors.Join(err, <-background)
}

// open opens storage, and starts all parts that need storage. Until storage is open, requests wait
// in awaitOpen. A process that cannot reach storage tries again: if it ended, the host would only
// start it again.
func (s *Server) open(ctx context.Context) error {
	store, err := s.awaitStore(ctx, s.endWith)
	if err != nil {
		return err
	}

	var permit *residence.Permit
	if s.host != nil {
		permit = residence.NewPermit(time.Now)
	}

	r := newServerRunning(ctx, s.App, store, permit, s.checkEpoch)
	s.running.Store(r)
	close(s.opened)
	s.log.Info("handler: ready", "duration_ms", time.Since(s.startedAt).Milliseconds())
	go s.watchEpoch(ctx, store)
	if s.alone != nil {
		s.startTriggers(ctx, r)
	}

	go func() {
		err := panics.Catch(func() error { return s.PrepareStorage(ctx) })
		if err != nil && ctx.Err() == nil {
			s.log.Warn("handler: queues and containers not looked at", "err", err)
		}
	}()

	if err := r.sweeper.Sweep(ctx); err != nil { // resumes the work of processes that have ended
		s.log.Warn("handler: first sweep incomplete", "err", err)
	}

	return nil
}

// watchEpoch ends the server if the number of lanes was changed, or if the table was removed or
// replaced.
func (s *Server) watchEpoch(ctx context.Context, store *lane.Store) {
	err := panics.Catch(func() error { return relane.Watch(ctx, store, s.epochChecks) })
	if err != nil {
		s.endWith(err)
	}
}

// checkEpoch makes watchEpoch check whether the epoch is over. It returns at once.
func (s *Server) checkEpoch() {
	select {
	case s.epochChecks <- struct{}{}:
	default:
	}
}
