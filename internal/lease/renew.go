package lease

import (
	"context"
	"time"

	"weir/internal/clock"
	"weir/internal/storage"
)

// renewDelay is the pause after a renewal that failed.
const renewDelay = time.Second

// renew keeps the lease until its context ends.
func (l *Lease) renew() {
	defer close(l.done)
	wait := l.cfg.Length / 3
	for clock.Sleep(l.ctx, wait) && l.Trusted() {
		wait = l.renewOnce()
	}
}

// renewOnce sends one renewal and gives the wait before the next: a third of the length
// from when this one was sent, or a second after it failed.
func (l *Lease) renewOnce() time.Duration {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.requestTimeout())
	defer cancel()
	sent := l.read()
	err := l.cfg.Leases.Renew(ctx, l.name, l.id)
	switch {
	case err == nil:
		l.extend(sent)
		return l.cfg.Length/3 - time.Since(sent.mono)
	case storage.Is(err, storage.Conflict):
		l.lose(err)
	case l.ctx.Err() == nil:
		l.cfg.Log.Warn("lease: not renewed", "err", err)
	}
	return renewDelay
}
