package lease

import "time"

// trustCheckInterval bounds how late Context is cancelled if only the wall clock has passed the end
// of trust: timers run on the monotonic clock, which stands still while a machine sleeps.
const trustCheckInterval = time.Second

// clockReading is one moment, as both clocks show it.
type clockReading struct {
	mono time.Time // has a monotonic reading, whatever Config.Now returns
	wall time.Time // from Config.Now
}

func (l *Lease) readClocks() clockReading { return clockReading{mono: time.Now(), wall: l.cfg.Now()} }

// elapsedSince returns the time that has elapsed on one of the two clocks: the larger of the two times.
// Round removes the monotonic reading, so that the wall times are subtracted.
func (r clockReading) elapsedSince(start clockReading) time.Duration {
	return max(r.mono.Sub(start.mono), r.wall.Round(0).Sub(start.wall.Round(0)))
}

// trustDuration returns how long one grant is trusted.
func (l *Lease) trustDuration() time.Duration { return l.cfg.Length - l.cfg.Margin }

// trustLeft returns how long trust lasts without a renewal; 0 or less if it has ended. The caller
// holds mu.
func (l *Lease) trustLeft() time.Duration {
	return l.trustDuration() - l.readClocks().elapsedSince(l.grantedAt)
}

// TrustUntil returns the end of trust as the wall clock, Config.Now, will show it. A later renewal extends trust. If
// the wall clock is set back, it shows an earlier time when trust ends.
func (l *Lease) TrustUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grantedAt.wall.Add(l.trustDuration())
}

// Trusted reports whether the lease may be trusted now, by both clocks. Once it has returned false
// it never returns true again, and Context is cancelled.
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

// extendTrust extends trust after a renewal, unless trust ended before the answer arrived. sent is the
// time at which the renewal was sent.
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

// setLost ends the lease for good. err is storage's refusal; nil = trust has ended.
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

// checkTrust checks both clocks each second and at the end of trust, and cancels the context if
// trust has ended. It runs on its own timer, because the renewing goroutine may be waiting for
// storage. It stops when the context has ended.
func (l *Lease) checkTrust() {
	if !l.Trusted() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.trustTimer.Reset(min(l.trustLeft(), trustCheckInterval))
	}
}
