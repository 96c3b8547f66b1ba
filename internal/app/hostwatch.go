package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"weir/internal/hostwatch"
	"weir/internal/panics"
)

// hostWatcher watches the host that started this process.
type hostWatcher interface {
	// Stop waits until the host stops or is gone.
	Stop(ctx context.Context) (hostwatch.Event, error)
	// End waits until the host is gone.
	End(ctx context.Context) error
}

func newHostWatcher(env func(string) string, log *slog.Logger) hostWatcher {
	proc, host := os.DirFS("/proc"), os.Getppid()
	return &hostwatch.Watch{Proc: proc, Host: host, Parent: os.Getppid, Ports: hostwatch.Ports(proc, host, env),
		Found: func(int) { log.Debug("handler: the host's socket found") }}
}

// hostEndsWithin is longer than a host needs to stop. A stopping host waits for its HTTP requests, and the platform
// ends each HTTP request after 230 s.
const hostEndsWithin = 5 * time.Minute

var (
	errHostGone  = errors.New("the host is gone")
	errHostStays = errors.New("the host closed its socket and did not end; the process ends, " +
		"so that the host starts it again")
)

// watchHost hands all lanes over when the host begins to stop. It ends the process when the host is gone. It also ends
// the process if the host began to stop and is not gone after the time hostEndsWithin.
func (s *Server) watchHost(ctx context.Context, host hostWatcher) {
	defer panics.Log(s.log, "handler: watch of the host")
	event, err := host.Stop(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		s.log.Info("handler: the host's stop cannot be noticed here", "err", err)
	case event == hostwatch.Stops:
		go s.leaveLanes(ctx)
		limited, cancel := context.WithTimeout(ctx, hostEndsWithin)
		defer cancel()
		ctx = limited
	}
	if err = host.End(ctx); err == nil {
		s.endWith(errHostGone)
	} else if errors.Is(err, context.DeadlineExceeded) {
		s.endWith(errHostStays)
	}
}

// leaveLanes hands all lanes over for good, and makes the history write the counters of the present minute. Both must
// happen now, because the host later kills this process without a signal. The process still answers requests; other
// processes deliver the messages that this process appends.
func (s *Server) leaveLanes(ctx context.Context) {
	defer panics.Log(s.log, "handler: hand-over of the lanes")
	select {
	case <-s.opened: // waits for the drainer: a drainer that is created after leaveLanes would take lanes
	case <-ctx.Done():
		return
	}
	s.log.Info("handler: the host stops, lanes are handed over")
	startedAt := time.Now()
	s.running.Load().tickets.Leave()
	s.running.Load().history.Leave()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := s.running.Load().drainer.Close(limited); err != nil {
		s.log.Warn("handler: lanes not handed over", "err", err)
		return
	}
	s.log.Info("handler: lanes handed over", "duration_ms", time.Since(startedAt).Milliseconds())
}
