package lease

import (
	"time"

	"weir/internal/panics"
)

// trustCheckInterval is the longest time between two checks whether trust has ended. A single timer
// for the end of trust would fire late if the machine sleeps meanwhile: timers use the monotonic
// clock, which stops during the sleep.
const trustCheckInterval = time.Second

// clockReading is one moment as the monotonic clock and the wall clock show it.
type clockReading struct {
	mono time.Time // from time.Now, which always has a monotonic reading
	wall time.Time // from Config.Now
}

func (l *Lease) readClocks() clockReading {
	return clockReading{mono: time.Now(), wall: l.cfg.Now()}
}

// elapsedSince returns the larger of the times that the two clocks have measured. Round removes the
// monotonic reading, so that Sub subtracts the wall times.
func (r clockReading) elapsedSince(start clockReading) time.Duration {
	return max(r.mono.Sub(start.mono), r.wall.Round(0).Sub(start.wall.Round(0)))
}

// trustDuration returns how long the lease is trusted after a request that storage granted.
func (l *Lease) trustDuration() time.Duration { return l.cfg.Length - l.cfg.Margin }

// trustLeft returns how long trust lasts without a renewal. The result is 0 or less if trust has
// ended. The caller must hold mu.
func (l *Lease) trustLeft() time.Duration {
	return l.trustDuration() - l.readClocks().elapsedSince(l.grantedAt)
}

// TrustUntil returns the end of trust on the wall clock (Config.Now). A later renewal extends
// trust. If the wall clock is set back, trust ends before the wall clock shows the returned time.
func (l *Lease) TrustUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grantedAt.wall.Add(l.trustDuration())
}

// Trusted reports whether both clocks show that the lease can be trusted now. After Trusted has
// returned false, it never returns true again, and Context is cancelled.
func (l *Lease) Trusted() bool {
	if l.ctx.Err() != nil {
		return false
	}

	l.mu.Lock()
	left := l.trustLeft()
	l.mu.Unlock()
	if left > 0 {
		return true
	}

	l.setLost(nil)

	return false
}

// extendTrust extends trust after a renewal. If trust ended before the answer arrived, the lease is
// lost. sent is the time at which the renewal was sent.
func (l *Lease) extendTrust(sent clockReading) {
	l.mu.Lock()
	intact := l.trustLeft() > 0
	if intact {
		l.grantedAt = sent
	}

	l.mu.Unlock()
	if !intact {
		l.setLost(nil)
	}
}

// setLost ends the lease for good. err is the refusal by storage; nil = trust has ended.
func (l *Lease) setLost(err error) {
	l.lostOnce.Do(func() {
		if l.ctx.Err() == nil {
			l.cfg.Log.Warn("lease: lost", "err", err)
		}
		l.cancel(ErrLost)
	})
}

func (l *Lease) startTrustTimer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trustTimer = time.AfterFunc(min(l.trustLeft(), trustCheckInterval), l.checkTrust)
}

// checkTrust cancels the context if trust has ended. It runs each second and at the end of trust,
// until the context has ended. It has its own timer, because the goroutine of keepRenewing may be
// waiting for storage.
func (l *Lease) checkTrust() {
	defer panics.Log(l.cfg.Log, "lease: check of trust")
	if !l.Trusted() {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.trustTimer.Reset(min(l.trustLeft(), trustCheckInterval))
	}
}
