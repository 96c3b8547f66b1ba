package app

import (
	"context"
	"time"

	"weir/internal/residence"
)

// newHostWatch returns the watch of the host that started this process.
func (s *Server) newHostWatch(host residence.Host) residence.HostWatch {
	return residence.HostWatch{Host: host, Leave: s.leaveLanes, End: s.endWith, Log: s.log}
}

// leaveLanes hands all lanes over for good, and makes the history write the counters of the present
// minute. Both must happen now, because the host later kills this process without a signal. The
// process still answers requests; other processes deliver the messages that this process appends.
func (s *Server) leaveLanes(ctx context.Context) {
	select {
	case <-s.opened: // waits for the drainer: a drainer that is created after leaveLanes would take lanes
	case <-ctx.Done():
		return
	}

	s.log.Info("handler: the host stops, lanes are handed over")
	if s.crashGuard != nil {
		s.crashGuard.Stop()
	}

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
