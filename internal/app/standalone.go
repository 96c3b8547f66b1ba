package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/dashboard"
	"weir/internal/door"
	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/settings"
	"weir/internal/telemetry"
	"weir/internal/trigger"
)

// StandaloneOptions has the options of the command weir serve.
type StandaloneOptions struct {
	Listen        string // address with port; port 0 = any free port
	IsBehindProxy bool   // a proxy in front ends TLS, and its forwarding headers are true
	// Listening is called with the address of the process as soon as it answers requests; nil = no
	// call.
	Listening func(base string)
}

// standalone has the parts of a server that stand in for a Functions host.
type standalone struct {
	door         *door.Door
	certificates *door.Certificates // nil = no TLS
}

// ServeAlone serves requests without a Functions host until ctx ends: it listens on an address of
// its own, checks keys, polls the queues of tickets and events, and sweeps each minute. ServeAlone
// logs each error that it returns, and why it started and stopped. If the process must be started
// again, the error is a RestartError.
func ServeAlone(ctx context.Context, p Process, o StandaloneOptions) error {
	setGCPercent(p.Env)
	limitMemory(p.Env, os.DirFS("/"))
	level := &slog.LevelVar{}
	local := newSeverityHandler(p.Stdout, p.Stderr, level)
	export := telemetry.Open(ctx, p.Env, telemetryBuild(), local)
	defer flushExport(ctx, export)
	log := slog.New(export.Log(local))

	a, err := newWith(p.Env, log, appOptions{program: "weir serve", isServer: true})
	alone := (*standalone)(nil)
	if err == nil {
		if alone, err = a.newStandalone(o); err == nil {
			err = a.checkLanes(ctx)
		}
		if err != nil {
			a.closeAccount()
		}
	}

	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			log.Error("serve: not started", "err", line)
		}
		return err
	}
	defer a.closeAccount()
	level.Set(slog.Level(a.settings.Log.Level))
	a.startExport(ctx, export)

	return a.serveAlone(ctx, alone, o, p.StartedAt)
}

// checkLanesTimeout limits checkLanes. A process starts although storage cannot be reached, and
// tries again.
const checkLanesTimeout = 2 * time.Second

// checkLanes returns an error if storage has other lanes than the settings, or if everything was
// moved to another store. Such a process would end as soon as it has started.
func (a *App) checkLanes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkLanesTimeout)
	defer cancel()
	_, err := a.openStore(ctx, nil)
	if lane.IsOtherLanes(err) || errors.Is(err, lane.ErrMoved) {
		return err
	}

	return nil
}

func (a *App) serveAlone(
	ctx context.Context,
	alone *standalone,
	o StandaloneOptions,
	startedAt time.Time,
) error {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		err = fmt.Errorf("%w; --listen takes another address", err)
		a.log.Error("serve: cannot listen", "err", err)
		return fmt.Errorf("listen on %s: %w", o.Listen, err)
	}

	defer a.openCrashGuard(a.openServeMarks(listener.Addr()))()

	base := alone.baseURL(listener.Addr())
	a.log.Info(
		"serve: started",
		"reason",
		"command weir serve",
		"detail",
		"listens on "+base+", "+alone.describe(),
	)

	if o.Listening != nil {
		o.Listening(base)
	}

	s := newServer(a, startedAt)
	s.alone = alone
	err = s.Run(ctx, listener)
	reason := "error"
	if err == nil {
		reason = fmt.Sprint(context.Cause(ctx))
	}

	a.log.Info(
		"serve: stopped",
		"reason",
		reason,
		"duration_ms",
		time.Since(startedAt).Milliseconds(),
	)

	return logEnd(err, a.log)
}

// newStandalone returns the parts that stand in for a Functions host. The error has a line for each
// problem.
func (a *App) newStandalone(o StandaloneOptions) (*standalone, error) {
	a.settings.Delivery.Instances = settings.AnyInstance // no host gives tickets to single processes
	keys, _ := door.ParseKeys(a.settings.Keys)           // settings.Load has checked the keys
	alone := &standalone{
		door: door.New(door.Config{Keys: keys, IsBehindProxy: o.IsBehindProxy, Page: dashboard.Base,
			Now: time.Now, Log: a.log}),
	}

	problems := []error{door.CheckAddress(o.Listen, door.Protection{HasKeys: len(keys) > 0,
		HasTLS: a.settings.TLS.IsSet(), IsBehindProxy: o.IsBehindProxy})}

	if a.settings.TLS.IsSet() {
		var err error
		alone.certificates, err = door.OpenCertificates(
			a.settings.TLS.Certificate,
			a.settings.TLS.Key,
			time.Now,
			a.log,
		)

		problems = append(problems, err)
	}

	if err := errors.Join(problems...); err != nil {
		return nil, err
	}

	a.door = alone.door

	return alone, nil
}

// describe returns the protection of the process, for the log.
func (s *standalone) describe() string {
	var parts []string
	if len(s.door.Keys) == 0 {
		parts = append(parts, "asks for no key")
	} else {
		parts = append(parts, "asks for keys")
	}

	if s.door.IsBehindProxy {
		parts = append(parts, "behind a proxy")
	}

	return strings.Join(parts, ", ")
}

// baseURL returns the address of the process for clients on this machine.
func (s *standalone) baseURL(address net.Addr) string {
	scheme := "http"
	if s.certificates != nil {
		scheme = "https"
	}

	text := address.String()
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		text = net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}

	return scheme + "://" + text
}

// newHandler returns the handler of all requests. The address / leads to the operator's page.
func (s *standalone) newHandler(functions http.Handler) http.Handler {
	return s.door.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, dashboard.Base, http.StatusSeeOther)
			return
		}
		functions.ServeHTTP(w, r)
	}))
}

// guardRoutes returns the routes that callers may reach, each with the check of its key, and the
// routes of the sign-in. The paths that only a Functions host calls are left out: this process
// calls these functions itself.
func guardRoutes(d *door.Door, table []route) (guarded []route) {
	for _, one := range table {
		if strings.HasPrefix(one.path, "/api/") {
			one.handler = d.Guard(one.function, one.handler)
			guarded = append(guarded, one)
		}
	}

	for path, handler := range d.Pages() {
		guarded = append(
			guarded,
			route{[]string{http.MethodGet, http.MethodPost}, path, "view", handler},
		)
	}

	return guarded
}

// idleTimeout ends connections without requests. A Functions host ends those of its clients itself.
const idleTimeout = 2 * time.Minute

// configure sets what a server needs that clients reach directly.
func (s *standalone) configure(server *http.Server) {
	server.IdleTimeout, server.MaxHeaderBytes = idleTimeout, 64<<10
	if s.certificates != nil {
		server.TLSConfig = s.certificates.TLS()
	}
}

// serve answers requests on the listener until the server is closed.
func (s *standalone) serve(server *http.Server, listener net.Listener) error {
	if s.certificates != nil {
		return server.ServeTLS(listener, "", "")
	}
	return server.Serve(listener)
}

// startTriggers makes the calls that a Functions host makes for queues and timers, until ctx ends.
// It also takes messages from RabbitMQ if the settings have such queues. stopTriggers waits for all
// these calls.
func (s *Server) startTriggers(ctx context.Context, r *running) {
	sweep := func(ctx context.Context) {
		if err := r.sweeper.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("serve: sweep incomplete", "err", err)
		}
	}

	s.runInBackground(ctx, "serve: sweep", func() { trigger.EachMinute(ctx, time.Now, sweep) })
	for _, q := range r.listTriggers() {
		s.runInBackground(ctx, "serve: queue", func() { q.Run(ctx) })
	}

	if s.settings.Intake.RabbitMQ != nil {
		consumer := s.newConsumer(r.appender, r.waker.Filed().Ring, r.upstreams)
		s.runInBackground(ctx, "serve: broker", func() { consumer.Run(ctx) })
	}
}

// runInBackground runs work until ctx ends. It starts the work again after a panic.
func (s *Server) runInBackground(ctx context.Context, name string, work func()) {
	s.triggers.Go(func() { panics.Repeat(ctx, s.log, name, work) })
}

// stopTriggers waits for the end of what startTriggers started. It returns early if ctx ends.
func (s *Server) stopTriggers(ctx context.Context) error {
	if clock.WaitFor(ctx, &s.triggers) != nil {
		return errors.New("calls of queues and timers have not ended in time")
	}
	return nil
}
