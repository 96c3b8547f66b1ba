package history

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math/big"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/storage"
)

// Config configures a Keeper. All fields are required, except Between.
type Config struct {
	Table    storage.Table
	Recorder *Recorder
	Between  time.Duration // shortest time between two attempts of a lane, from the setting delivery.rate; 0 = none
	Now      func() time.Time
	Log      *slog.Logger
}

// Keeper writes the Recorder's minutes to storage, and reads the minutes of all instances. The caller must Close it.
// Safe for concurrent use.
type Keeper struct {
	Config
	instance  string
	startedAt time.Time
	stop      context.CancelFunc
	done      chan struct{}

	leaving chan struct{} // closed by Leave
	leave   sync.Once

	lastWritten      string       // row and last minute of the latest write of completed minutes; "" = write again
	cleanupRequested atomic.Bool  // the next write after minCleanupAge is replaced by a look for expired rows
	expiredOps       []storage.Op // operations that delete the expired rows that were found

	cache cachedView
}

// NewKeeper returns a Keeper, and starts its writes.
func NewKeeper(cfg Config) *Keeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &Keeper{Config: cfg, instance: rand.Text()[:10], startedAt: cfg.Now(), stop: stop, done: make(chan struct{}),
		leaving: make(chan struct{})}
	go k.runLoop(ctx)
	return k
}

// minCleanupAge is the age of a Keeper before its first cleanup, so that the work of a starting
// process comes first.
const minCleanupAge = 10 * time.Minute

// RequestCleanup requests the removal of expired rows. It returns at once. The Keeper looks for the rows in place of
// one of its next writes, and deletes them in place of the write after that. Leave ends the removal. It is enough if
// one instance calls RequestCleanup each hour.
func (k *Keeper) RequestCleanup() { k.cleanupRequested.Store(true) }

// Leave prepares for the end of the process, which may come at any moment: the Keeper writes the
// present minute at once, and again within leavingInterval of each change. It returns at once.
func (k *Keeper) Leave() { k.leave.Do(func() { close(k.leaving) }) }

// Close writes all minutes, the present one included, and ends.
func (k *Keeper) Close(ctx context.Context) error {
	k.stop()
	<-k.done
	return k.writeMinutes(ctx, true)
}

// A process that may be killed at any moment looks for changes to write at intervals of leavingInterval. A host that
// stops kills the process 0.3 s after the host has closed its socket.
const leavingInterval = 50 * time.Millisecond

// When writtenBy of a minute has passed, every instance has begun to write the previous minute.
const writtenBy = 55 * time.Second

// runLoop writes once a minute until ctx ends, at a random second of the minute, so that instances do not write at the
// same time. After Leave it writes more often.
func (k *Keeper) runLoop(ctx context.Context) {
	defer close(k.done)
	at := randomDuration(writtenBy-5*time.Second) + 5*time.Second
	for {
		next := k.Now().Truncate(time.Minute).Add(at)
		if !next.After(k.Now()) {
			next = next.Add(time.Minute)
		}
		timer := time.NewTimer(next.Sub(k.Now()))
		select {
		case <-timer.C:
		case <-k.leaving:
			timer.Stop()
			k.writeUntilEnd(ctx)
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		k.dropCache()
		k.logFailure(ctx, k.writeOnce)
	}
}

// writeTimeout bounds one write.
const writeTimeout = 20 * time.Second

// logFailure calls write for at most writeTimeout, and logs its error. It reports whether write returned no error.
func (k *Keeper) logFailure(ctx context.Context, write func(context.Context) error) bool {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := write(limited)
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("history: not written, will retry", "err", err)
	}
	return err == nil
}

// writeUntilEnd writes all unwritten minutes, also the present one, after each change until ctx ends.
func (k *Keeper) writeUntilEnd(ctx context.Context) {
	const none = int64(-1)
	for written := none; ctx.Err() == nil; {
		wait, changes := leavingInterval, k.Recorder.countChanges()
		if changes != written {
			if k.logFailure(ctx, func(ctx context.Context) error { return k.writeMinutes(ctx, true) }) {
				if written == none {
					k.Log.Info("history: the present minute is written, the process may end")
				}
				written = changes
			} else {
				wait = time.Second
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func randomDuration(span time.Duration) time.Duration {
	n, err := rand.Int(rand.Reader, big.NewInt(int64(span)))
	if err != nil {
		return 0
	}
	return time.Duration(n.Int64())
}

// writeOnce makes at most one request to storage: it deletes expired rows, looks for them, or writes minutes.
func (k *Keeper) writeOnce(ctx context.Context) error {
	switch {
	case len(k.expiredOps) > 0:
		ops := k.expiredOps
		k.expiredOps = nil
		_, err := k.Table.Transact(ctx, partition, ops)
		if storage.Is(err, storage.NotFound) { // another instance was first
			return nil
		}
		return err
	case k.Now().Sub(k.startedAt) >= minCleanupAge && k.cleanupRequested.Swap(false):
		var err error
		k.expiredOps, err = findExpired(ctx, k.Table, k.Now())
		return err
	}
	return k.writeMinutes(ctx, false)
}

// writeMinutes writes the oldest hour that has new completed minutes. If "unfinished" is true, it writes all hours and
// the present minute. A later call writes the present minute again, because it may have changed.
func (k *Keeper) writeMinutes(ctx context.Context, unfinished bool) error {
	minutes := k.Recorder.copyMinutes(unfinished)
	for len(minutes) > 0 {
		hour, n := minutes[0].At.Truncate(time.Hour), 0
		for n < len(minutes) && minutes[n].At.Truncate(time.Hour).Equal(hour) {
			n++
		}
		if state := rowKey(hour, minutes[n-1].At.String()); unfinished || state != k.lastWritten {
			if err := writeRow(ctx, k.Table, k.instance, hour, minutes[:n]); err != nil {
				return err
			}
			if unfinished {
				k.lastWritten = ""
			} else if k.lastWritten = state; n < len(minutes) {
				k.Recorder.dropBefore(hour.Add(time.Hour))
				return nil // the next hour is written in the next minute
			}
		} else if n < len(minutes) {
			k.Recorder.dropBefore(hour.Add(time.Hour))
		}
		minutes = minutes[n:]
	}
	return nil
}

// cachedView is the history that Keeper read last.
type cachedView struct {
	mu     sync.Mutex
	others minuteSet // minutes of the other instances together; nil = not read, or dropped
	own    minuteSet // minutes of this instance
	readAt time.Time // time of the read
	from   time.Time // earlier minutes were not read
}
