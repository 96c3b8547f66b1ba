package residence

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"weir/internal/panics"
	"weir/internal/residence/hostwatch"
)

// Host is the Functions host that started this process; see hostwatch.Watch.
type Host interface {
	// Stop waits until the host stops or is gone.
	Stop(ctx context.Context) (hostwatch.Event, error)
	// End waits until the host is gone.
	End(ctx context.Context) error
}

// FindHost returns the parent of this process as its host.
func FindHost(env func(string) string, log *slog.Logger) Host {
	proc, host := os.DirFS("/proc"), os.Getppid()
	return &hostwatch.Watch{Proc: proc, Host: host, Parent: os.Getppid,
		Ports: hostwatch.Ports(proc, host, env),
		Found: func(int) { log.Debug("handler: the host's socket found") }}
}

// hostEndsWithin is longer than a host needs to stop. A stopping host waits for its HTTP requests,
// and the platform ends each HTTP request after 230 s.
const hostEndsWithin = 5 * time.Minute

// Errors with which a HostWatch ends this process.
var (
	ErrHostGone  = errors.New("the host is gone")
	ErrHostStays = errors.New("the host closed its socket and did not end; the process ends, " +
		"so that the host starts it again")
)

// HostWatch ends the residence of this process with its host. All fields are required.
type HostWatch struct {
	Host  Host
	Leave func(ctx context.Context) // hands all lanes over for good
	End   func(err error)           // ends this process; returns at once
	Log   *slog.Logger
}

// Run calls Leave when the host begins to stop. It ends the process when the host is gone. It also
// ends the process if the host began to stop and is not gone after the time hostEndsWithin. It
// returns without that when ctx ends.
func (w HostWatch) Run(ctx context.Context) {
	defer panics.Log(w.Log, "handler: watch of the host")
	event, err := w.Host.Stop(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		w.Log.Info("handler: the host's stop cannot be noticed here", "err", err)
	case event == hostwatch.Stops:
		go w.leave(ctx)
		limited, cancel := context.WithTimeout(ctx, hostEndsWithin)
		defer cancel()
		ctx = limited
	}

	if err = w.Host.End(ctx); err == nil {
		w.End(ErrHostGone)
	} else if errors.Is(err, context.DeadlineExceeded) {
		w.End(ErrHostStays)
	}
}

func (w HostWatch) leave(ctx context.Context) {
	defer panics.Log(w.Log, "handler: hand-over of the lanes")
	w.Leave(ctx)
}
