package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"weir/internal/retry"
	"weir/internal/storage"
)

// ErrBusy means that another process has the lease. It is a normal answer.
var ErrBusy = errors.New("lease busy")

// ErrLost is the cause of a lease's context when the lease may not be trusted any more.
var ErrLost = errors.New("lease lost")

// Bounds of the length that storage grants.
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

// Config configures a lease.
type Config struct {
	Leases storage.Leases
	Length time.Duration    // 15 to 60 s
	Margin time.Duration    // less than half of Length; 0 = a tenth of Length, but at least 2 s
	Now    func() time.Time // wall clock; nil = time.Now
	Log    *slog.Logger     // nil = no logs
}

// Margin returns the default margin for a lease length: the reserve for clocks that do not run at
// the same speed, and for processes that stand still.
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

// requestTimeout returns the time limit of one request.
func (c Config) requestTimeout() time.Duration { return c.Length / 6 }

// Lease is a lease that this process has taken. Its methods may be called concurrently.
type Lease struct {
	cfg      Config
	name     string
	id       string
	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when the renewing goroutine has ended
	lostOnce sync.Once

	mu         sync.Mutex
	grantedAt  clockReading // read before the last successful request was sent
	trustTimer *time.Timer

	releaseOnce sync.Once
	releaseErr  error
}

// Acquire takes the lease under a new random id. A goroutine renews the lease until it is lost,
// until Release, or until ctx ends. Acquire returns ErrBusy if another process has the lease; other
// errors are about cfg, or wrap storage's. The caller must Release the lease, even if it is lost.
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
	go l.keepRenewing()
	return l, nil
}

// acquireWithRetry sends the request again if its answer is lost, which is harmless under the same
// id. If the lease may have been granted, and no answer confirms that, acquireWithRetry releases the lease.
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

// isTransient reports whether the same request may succeed later.
func isTransient(err error) bool {
	k := storage.KindOf(err)
	return err != nil && (k == storage.Ambiguous || k == storage.Unavailable || k == storage.Throttled)
}

// Context returns a context that is cancelled with cause ErrLost when the lease may not be trusted
// any more. Release, and the end of the context given to Acquire, cancel it with another cause. All
// work that the lease protects must run under it.
func (l *Lease) Context() context.Context { return l.ctx }

// Release ends the lease's context, waits until the renewing goroutine has ended and releases the
// lease. It does so even if ctx has ended, and gives up after 5 s. It also returns nil if storage has
// given the lease to another process. Further calls return the first result.
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
