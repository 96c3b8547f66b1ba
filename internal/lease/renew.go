package lease

import (
	"context"
	"time"

	"weir/internal/clock"
	"weir/internal/storage"
)

// renewDelay is the pause after a renewal that failed.
const renewDelay = time.Second

func (l *Lease) keepRenewing() {
	wait := l.cfg.Length / 3
	for clock.Sleep(l.ctx, wait) && l.Trusted() {
		wait = l.renewOnce()
	}
}

// renewOnce sends one renewal, and returns the time to wait before the next one. After a success,
// the next renewal begins a third of the lease's length after the beginning of this renewal.
func (l *Lease) renewOnce() time.Duration {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.requestTimeout())
	defer cancel()
	sent := l.readClocks()
	err := l.cfg.Leases.Renew(ctx, l.name, l.id)
	switch {
	case err == nil:
		l.extendTrust(sent)
		return l.cfg.Length/3 - time.Since(sent.mono)
	case storage.Is(err, storage.Conflict):
		l.setLost(err)
	case l.ctx.Err() == nil:
		l.cfg.Log.Warn("lease: not renewed", "err", err)
	}

	return renewDelay
}
