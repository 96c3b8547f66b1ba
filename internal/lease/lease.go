package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"weir/internal/clock"
	"weir/internal/panics"
	"weir/internal/retry"
	"weir/internal/storage"
)

// ErrBusy means that another process has the lease.
var ErrBusy = errors.New("lease busy")

// ErrLost is the cause with which a lease's context is cancelled when the lease can no longer be
// trusted.
var ErrLost = errors.New("lease lost")

// Lengths of a lease that storage allows.
const (
	minLength = 15 * time.Second
	maxLength = time.Minute
)

const (
	minMargin      = 2 * time.Second
	acquireTries   = 3
	acquireDelay   = 250 * time.Millisecond
	releaseTimeout = 5 * time.Second
)

// Config has the settings of a lease.
type Config struct {
	Leases storage.Leases
	Length time.Duration // 15 to 60 s
	// a lease is trusted until Margin before its end; less than half of Length; 0 = default
	Margin time.Duration
	Now    func() time.Time // wall clock; nil = time.Now
	Log    *slog.Logger     // nil = no logs
}

// Margin returns the default margin for a lease length: a tenth of the length, but at least 2 s.
// The margin allows for clocks that run at different speeds, and for processes that stall.
func Margin(length time.Duration) time.Duration { return max(length/10, minMargin) }

func (c Config) withDefaults() Config {
	if c.Margin == 0 {
		c.Margin = Margin(c.Length)
	}

	if c.Now == nil {
		c.Now = time.Now
	}

	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}

	return c
}

func (c Config) validateConfig() error {
	switch {
	case c.Length < minLength || c.Length > maxLength:
		return fmt.Errorf("length %s is not within %s and %s", c.Length, minLength, maxLength)
	case c.Margin < 0 || c.Margin >= c.Length/2:
		return fmt.Errorf("margin %s is not less than half of length %s", c.Margin, c.Length)
	}
	return nil
}

func (c Config) requestTimeout() time.Duration { return c.Length / 6 }

// Lease is a lease that this process has taken. Its methods may be called concurrently.
type Lease struct {
	cfg      Config
	name     string
	id       string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when the goroutine of keepRenewing has ended
	lostOnce sync.Once

	mu sync.Mutex
	// wall clock and monotonic clock just before the last successful request was sent
	grantedAt  clockReading
	trustTimer *time.Timer

	releaseOnce sync.Once
	releaseErr  error
}

// Acquire takes the lease under a new random id. A goroutine then renews the lease until Release is
// called, the lease is lost, or ctx ends. If another process has the lease, Acquire returns
// ErrBusy. Any other error says that cfg is wrong, or wraps an error of storage. The caller must
// call Release, even after the lease is lost.
func Acquire(ctx context.Context, cfg Config, name string) (*Lease, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validateConfig(); err != nil {
		return nil, fmt.Errorf("acquire lease %s: %w", name, err)
	}

	l := &Lease{cfg: cfg, name: name, id: uuid.NewString(), done: make(chan struct{})}
	if err := l.acquireWithRetry(ctx); err != nil {
		return nil, err
	}

	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.startTrustTimer()
	go func() {
		defer close(l.done)
		// Without renewals, trust runs out, and the context ends.
		defer panics.Log(cfg.Log, "lease: renewals")
		l.keepRenewing()
	}()

	return l, nil
}

// acquireWithRetry sends the request again if its answer is lost. A repeated request under the same
// id does no harm. If all tries fail and an answer was lost, storage may have granted the lease.
// Then acquireWithRetry releases the lease.
func (l *Lease) acquireWithRetry(ctx context.Context) error {
	var err error
	maybeOurs := false
	_ = retry.Policy{
		First: acquireDelay, Tries: acquireTries,
		IsTransient: func(err error) bool { return maybeOurs && isTransient(err) },
	}.Do(ctx, func() error {
		err = l.acquireOnce(ctx)
		maybeOurs = maybeOurs || storage.Is(err, storage.Ambiguous)
		return err
	})

	switch {
	case err == nil:
		return nil
	case storage.Is(err, storage.Conflict):
		return ErrBusy
	case maybeOurs:
		if failed := l.sendRelease(ctx); failed != nil {
			l.cfg.Log.Warn("lease: not released", "err", failed)
		}
	}

	return fmt.Errorf("acquire lease %s: %w", l.name, err)
}

func (l *Lease) acquireOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.requestTimeout())
	defer cancel()
	sent := l.readClocks()
	err := l.cfg.Leases.Acquire(ctx, l.name, l.id, l.cfg.Length)
	if err == nil {
		l.grantedAt = sent
	}

	return err
}

// isTransient reports whether a repeated request can succeed.
func isTransient(err error) bool {
	k := storage.KindOf(err)
	return err != nil && (k == storage.Ambiguous || k == storage.Unavailable ||
		k == storage.Throttled)
}

// Context returns the context for all work that the lease protects. When the lease can no longer be
// trusted, the context is cancelled with the cause ErrLost. The context is also cancelled, with
// another cause, when Release is called or the context given to Acquire ends.
func (l *Lease) Context() context.Context { return l.ctx }

// Release cancels the lease's context, waits until the renewing goroutine has ended, and releases
// the lease. It does so even if ctx has ended. It waits at most 5 s for storage. If another process
// has the lease by now, Release returns nil. Further calls return the result of the first call.
func (l *Lease) Release(ctx context.Context) error {
	l.releaseOnce.Do(func() {
		l.cancel(context.Canceled)
		<-l.done
		l.releaseErr = l.sendRelease(ctx)
	})
	return l.releaseErr
}

func (l *Lease) sendRelease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := l.cfg.Leases.Release(ctx, l.name, l.id)
	if err == nil || storage.Is(err, storage.Conflict) || storage.Is(err, storage.NotFound) {
		return nil
	}
	return fmt.Errorf("release lease %s: %w", l.name, err)
}

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

// Do takes the lease, calls do with the lease's context, and releases the lease. A panic of do
// becomes an error, so that the lease is released. If another process has the lease, Do returns
// ErrBusy and does not call do. A lease that storage does not release ends by itself.
func Do(ctx context.Context, cfg Config, name string, do func(context.Context) error) error {
	l, err := Acquire(ctx, cfg, name)
	if err != nil {
		return err
	}

	err = panics.Catch(func() error { return do(l.Context()) })
	if failed := l.Release(ctx); failed != nil {
		l.cfg.Log.Warn("lease: not released", "err", failed)
	}

	return err
}

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
