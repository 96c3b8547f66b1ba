package history

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math/big"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/storage"
)

// Config configures a Keeper. All fields are required, except Between.
type Config struct {
	Table    storage.Table
	Recorder *Recorder
	// shortest time between two attempts of a lane, from the setting delivery.rate; 0 = no limit
	Between time.Duration
	Now     func() time.Time
	Log     *slog.Logger
}

// Keeper writes the Recorder's minutes to storage, and reads the minutes of all instances. The
// caller must Close it. A Keeper is safe for concurrent use.
type Keeper struct {
	Config
	instance string
	stop     context.CancelFunc
	done     chan struct{}

	leaving chan struct{} // closed by Leave
	leave   sync.Once

	// the hour and the last minute of the latest write; "" = write the hour again
	lastWritten string

	cache cachedView
}

// NewKeeper returns a Keeper, and starts its writes.
func NewKeeper(cfg Config) *Keeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &Keeper{Config: cfg, instance: rand.Text()[:10], stop: stop, done: make(chan struct{}),
		leaving: make(chan struct{})}
	go func() {
		defer close(k.done)
		panics.Repeat(ctx, k.Log, "history: writes", func() { k.runLoop(ctx) })
	}()

	return k
}

// Leave makes the Keeper write the present minute at once, and again soon after each change of the
// counts. So little is lost if the process is killed. Leave does not wait for a write.
func (k *Keeper) Leave() { k.leave.Do(func() { close(k.leaving) }) }

// Close ends the regular writes, and then writes all minutes, also the present one.
func (k *Keeper) Close(ctx context.Context) error {
	k.stop()
	<-k.done
	return k.writeMinutes(ctx, true)
}

// leavingInterval is the time between two checks for changes after Leave. It is short: when a host
// stops, it closes its socket, and kills this process 0.3 s later.
const leavingInterval = 50 * time.Millisecond

// writtenBy is counted from the start of a minute. When this time has passed, every instance has
// begun its write of the previous minute.
const writtenBy = 55 * time.Second

// runLoop writes once a minute, at a random second of the minute, so that instances do not write at
// the same time. After Leave it writes more often. It returns when ctx ends.
func (k *Keeper) runLoop(ctx context.Context) {
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
		k.logFailure(ctx, func(ctx context.Context) error { return k.writeMinutes(ctx, false) })
	}
}

// writeTimeout bounds one write.
const writeTimeout = 20 * time.Second

// logFailure calls write for at most writeTimeout, and logs an error. It reports whether write
// returned no error.
func (k *Keeper) logFailure(ctx context.Context, write func(context.Context) error) bool {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := write(limited)
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("history: not written, will retry", "err", err)
	}
	return err == nil
}

// writeUntilEnd writes after each change until ctx ends. It writes all unwritten minutes, also the
// present one.
func (k *Keeper) writeUntilEnd(ctx context.Context) {
	const none = int64(-1)
	for written := none; ctx.Err() == nil; {
		wait, changes := leavingInterval, k.Recorder.countChanges()
		if changes != written {
			if k.logFailure(ctx,
				func(ctx context.Context) error { return k.writeMinutes(ctx, true) }) {
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

// writeMinutes writes the oldest hour that has new completed minutes. If "unfinished" is true, it
// writes all hours and the present minute. The present minute can still change, so a later call
// writes that minute again.
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
				return nil // the next call writes the next hour
			}
		} else if n < len(minutes) {
			k.Recorder.dropBefore(hour.Add(time.Hour))
		}

		minutes = minutes[n:]
	}

	return nil
}

// cachedView has the minutes that the Keeper read last from storage.
type cachedView struct {
	mu     sync.Mutex
	others minuteSet // sums of all other instances; nil = nothing is cached
	own    minuteSet // minutes of this instance
	readAt time.Time // time of the read
	from   time.Time // the cache has the minutes from this time on
}
