package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"weir/internal/hostwatch"
)

// hostWatcher watches the host that started this process.
type hostWatcher interface {
	// Stop waits until the host stops or is gone, End until it is gone.
	Stop(ctx context.Context) (hostwatch.Event, error)
	End(ctx context.Context) error
}

func newHostWatcher(env func(string) string, log *slog.Logger) hostWatcher {
	proc, host := os.DirFS("/proc"), os.Getppid()
	return &hostwatch.Watch{Proc: proc, Host: host, Parent: os.Getppid, Ports: hostwatch.Ports(proc, host, env),
		Found: func(int) { log.Debug("handler: the host's socket found") }}
}

// hostEndsWithin is longer than a host that stops lives: it waits for its HTTP requests, which last up
// to 230 s on the platform.
const hostEndsWithin = 5 * time.Minute

var (
	errHostGone  = errors.New("the host is gone")
	errHostStays = errors.New("the host closed its socket and did not end; the process ends, so that the host starts it again")
)

// watchHost hands all lanes over when the host stops. It ends the process when the host is gone, or
// still runs hostEndsWithin after it closed its socket.
func (p *Program) watchHost(ctx context.Context, host hostWatcher) {
	event, err := host.Stop(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		p.log.Info("handler: the host's stop cannot be noticed here", "err", err)
	case event == hostwatch.Stops:
		go p.leaveLanes(ctx)
		limited, cancel := context.WithTimeout(ctx, hostEndsWithin)
		defer cancel()
		ctx = limited
	}
	if err = host.End(ctx); err == nil {
		p.end(errHostGone)
	} else if errors.Is(err, context.DeadlineExceeded) {
		p.end(errHostStays)
	}
}

// leaveLanes hands all lanes over, in order, and takes none again. Requests are still
// answered: another process delivers the messages that they file.
func (p *Program) leaveLanes(ctx context.Context) {
	select {
	case <-p.opened: // before that there is no drainer, which takes lanes as soon as it is there
	case <-ctx.Done():
		return
	}
	p.log.Info("handler: the host stops, lanes are handed over")
	began := time.Now()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if d := p.drainer.Load(); d != nil {
		if err := d.Close(limited); err != nil {
			p.log.Warn("handler: lanes not handed over", "err", err)
			return
		}
	}
	p.log.Info("handler: lanes handed over", "duration", time.Since(began))
}

// checkHostWatch returns the line stop of handler check: whether a process can notice here that its host stops.
func checkHostWatch(proc fs.FS, pid int) finding {
	f := finding{name: "stop", detail: "a stop of the host is noticed, so that lanes are handed over"}
	if err := hostwatch.Check(proc, pid); err != nil {
		f.detail = "a stop of the host cannot be noticed here (" + short(err).Error() + "): " +
			"the lanes of an instance that is stopped stand until the leases have run out"
	}
	return f
}
