package lease

import "time"

// watchInterval bounds how late Context learns of time that only the wall clock has seen
// pass: timers run on the monotonic clock, which stands still while a machine sleeps.
const watchInterval = time.Second

// reading is one moment on both clocks.
type reading struct {
	mono time.Time // carries a monotonic reading, whatever Config.Now gives
	wall time.Time // as Config.Now gave it
}

func (l *Lease) read() reading { return reading{mono: time.Now(), wall: l.cfg.Now()} }

// since is the larger of what the two clocks say has passed. Round strips the monotonic
// reading, so that wall times are compared as such.
func (r reading) since(start reading) time.Duration {
	return max(r.mono.Sub(start.mono), r.wall.Round(0).Sub(start.wall.Round(0)))
}

// window is how long one grant is trusted.
func (l *Lease) window() time.Duration { return l.cfg.Length - l.cfg.Margin }

// left is how long trust lasts if nothing is renewed; 0 or less when it has ended. The
// caller holds mu.
func (l *Lease) left() time.Duration { return l.window() - l.read().since(l.granted) }

// TrustUntil is the moment, by Config.Now, at which trust ends unless a renewal moves it
// on or a clock is set.
func (l *Lease) TrustUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted.wall.Add(l.window())
}

// Trusted says whether the lease may be trusted at this moment, by both clocks. Once it
// has said no it never says yes again, and Context is cancelled.
func (l *Lease) Trusted() bool {
	if l.ctx.Err() != nil {
		return false
	}
	l.mu.Lock()
	left := l.left()
	l.mu.Unlock()
	if left > 0 {
		return true
	}
	l.lose(nil)
	return false
}

// extend moves trust on to what a request sent at that moment is worth, unless trust has
// ended while the answer was on its way.
func (l *Lease) extend(sent reading) {
	l.mu.Lock()
	intact := l.left() > 0
	if intact {
		l.granted = sent
	}
	l.mu.Unlock()
	if !intact {
		l.lose(nil)
	}
}

// lose ends the lease for good; err is why storage took it away, nil when trust ended.
func (l *Lease) lose(err error) {
	l.lost.Do(func() {
		if l.ctx.Err() == nil {
			l.cfg.Log.Warn("lease: lost", "err", err)
		}
		l.cancel(ErrLost)
	})
}

func (l *Lease) startWatch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(min(l.left(), watchInterval), l.watch)
}

// watch looks at the clocks each second, and at the very moment when trust is to end. It
// is a timer of its own because the renewing goroutine may be waiting for storage. It ends
// by itself when the context has ended.
func (l *Lease) watch() {
	if !l.Trusted() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.timer.Reset(min(l.left(), watchInterval))
	}
}
