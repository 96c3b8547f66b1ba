// Package lease holds a blob lease: it renews it, knows how long it may be trusted, and
// cancels a context when it may not any more.
//
// # State and invariant
//
// A lease of length L was granted or renewed by a request that went out at s. Storage
// counts from when it received the request, so the lease lasts at least until s + L by
// storage's clock, and the holder trusts it until
//
//	trust end = s + L − margin        (margin: a tenth of L, at least 2 s)
//
// Nothing may be written to the CMS after the end of trust. Elapsed time is the larger of
// what the monotonic and the wall clock say: the one stands still while a machine sleeps,
// the other can be set back.
//
// # Failure
//
// The lease is renewed each third of L; a renewal that fails is tried again each second.
// An answer that comes late counts from when its request was sent. When somebody else has
// the lease, or trust ends, Context is cancelled with ErrLost. A process that stood still
// past the end of trust finds Trusted false at once, whether or not its timer has fired.
package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"weir/internal/storage"
)

// ErrBusy says that somebody else has the lease: a normal answer.
var ErrBusy = errors.New("lease busy")

// ErrLost is the cause of a lease's context when it may not be trusted any more.
var ErrLost = errors.New("lease lost")

const (
	minMargin      = 2 * time.Second
	renewRetry     = time.Second
	releaseTimeout = 5 * time.Second
	acquireTries   = 3
)

// Config says what to hold and how.
type Config struct {
	Leases storage.Leases
	Length time.Duration    // 15 to 60 s
	Margin time.Duration    // 0 = a tenth of Length, at least 2 s
	Now    func() time.Time // wall clock with monotonic reading
	Log    *slog.Logger
}

// Margin is the default margin of a lease length: the time kept back for clocks that
// differ and processes that stand still.
func Margin(length time.Duration) time.Duration { return max(length/10, minMargin) }

// Lease is a lease that is held. Its methods may be called concurrently.
type Lease struct {
	cfg    Config
	name   string
	id     string
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // the renewing goroutine has ended

	mu      sync.Mutex
	granted time.Time // before the request that last succeeded was sent
	timer   *time.Timer

	release sync.Once
	err     error
}

// Acquire takes the lease under a fresh random id. ErrBusy: somebody else has it.
func Acquire(ctx context.Context, cfg Config, name string) (*Lease, error) {
	if cfg.Margin == 0 {
		cfg.Margin = Margin(cfg.Length)
	}
	l := &Lease{cfg: cfg, name: name, id: newID(), done: make(chan struct{})}
	if err := l.acquire(ctx); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(time.Until(l.TrustUntil()), l.expire)
	go l.renew()
	return l, nil
}

// acquire asks again when the answer is lost: under the same id that is harmless.
func (l *Lease) acquire(ctx context.Context) error {
	var err error
	for range acquireTries {
		sent := l.cfg.Now()
		if err = l.cfg.Leases.Acquire(ctx, l.name, l.id, l.cfg.Length); err == nil {
			l.granted = sent
			return nil
		}
		if !storage.Is(err, storage.Ambiguous) || ctx.Err() != nil {
			break
		}
	}
	if storage.Is(err, storage.Conflict) {
		return ErrBusy
	}
	if storage.Is(err, storage.Ambiguous) {
		l.giveBack(ctx)
	}
	return fmt.Errorf("acquire lease %s: %w", l.name, err)
}

// Context is cancelled with cause ErrLost when the lease may not be trusted any more.
// What the lease protects happens under it.
func (l *Lease) Context() context.Context { return l.ctx }

// TrustUntil is the moment at which trust ends unless a renewal moves it on.
func (l *Lease) TrustUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted.Add(l.cfg.Length - l.cfg.Margin)
}

// Trusted says whether the lease may be trusted at this moment, by both clocks.
func (l *Lease) Trusted() bool {
	if l.ctx.Err() != nil {
		return false
	}
	l.mu.Lock()
	granted := l.granted
	l.mu.Unlock()
	now := l.cfg.Now()
	elapsed := max(now.Sub(granted), now.Round(0).Sub(granted.Round(0)))
	return elapsed < l.cfg.Length-l.cfg.Margin
}

// expire runs when trust ends by the timer, which renewals move on.
func (l *Lease) expire() { l.cancel(ErrLost) }

// renew keeps the lease until its context ends.
func (l *Lease) renew() {
	defer close(l.done)
	wait := l.cfg.Length / 3
	for {
		if !sleep(l.ctx, wait) {
			return
		}
		if !l.Trusted() {
			l.cancel(ErrLost)
			return
		}
		wait = l.renewOnce()
	}
}

// renewOnce sends one renewal and gives the wait before the next.
func (l *Lease) renewOnce() time.Duration {
	sent := l.cfg.Now()
	err := l.cfg.Leases.Renew(l.ctx, l.name, l.id)
	switch {
	case err == nil:
		l.extend(sent)
		return l.cfg.Length / 3
	case storage.Is(err, storage.Conflict):
		l.cancel(ErrLost)
	case l.ctx.Err() == nil:
		l.cfg.Log.Warn("lease: not renewed", "err", err)
	}
	return renewRetry
}

// extend moves trust on, unless it has ended while the answer was on its way.
func (l *Lease) extend(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer.Stop() {
		l.granted = sent
		l.timer.Reset(max(0, sent.Add(l.cfg.Length-l.cfg.Margin).Sub(l.cfg.Now())))
	}
}

// Release ends the context and gives the lease back, on a context of its own with a limit
// of 5 s. A lease that is lost already is released without error. Calling it again gives
// the first answer.
func (l *Lease) Release(ctx context.Context) error {
	l.release.Do(func() {
		l.cancel(context.Canceled)
		l.timer.Stop()
		<-l.done
		l.err = l.giveBack(ctx)
	})
	return l.err
}

func (l *Lease) giveBack(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err := l.cfg.Leases.Release(limited, l.name, l.id)
	if storage.Is(err, storage.Conflict) || storage.Is(err, storage.NotFound) {
		return nil
	}
	return err
}

// sleep waits for d, or for ctx to end, when it says false.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// newID makes a random UUID (RFC 9562, version 4), which is what blob leases want.
func newID() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
