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

// Config is what a Keeper works with. All fields but Between are needed.
type Config struct {
	Table    storage.Table
	Recorder *Recorder
	Between  time.Duration // from one attempt of an instance to the next, at least; 0 = none
	Now      func() time.Time
	Log      *slog.Logger
}

// Keeper writes the Recorder's minutes to storage and reads those of all instances. Close
// it. Safe for concurrent use.
type Keeper struct {
	Config
	instance string
	began    time.Time
	stop     context.CancelFunc
	done     chan struct{}

	written string       // what was written last
	clear   atomic.Bool  // old rows are to be looked for
	doomed  []storage.Op // old rows that were found

	view view
}

// NewKeeper begins to write.
func NewKeeper(cfg Config) *Keeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &Keeper{Config: cfg, instance: rand.Text()[:10], began: cfg.Now(), stop: stop, done: make(chan struct{})}
	go k.loop(ctx)
	return k
}

// settled is how old a Keeper is before it looks for old rows: what a process does when it
// starts comes first, and nothing hurries.
const settled = 10 * time.Minute

// Clear asks for old rows to be removed, when it is the turn of that. One instance is to ask,
// each hour or so. It returns at once.
func (k *Keeper) Clear() { k.clear.Store(true) }

// Close writes what there is and ends.
func (k *Keeper) Close(ctx context.Context) error {
	k.stop()
	<-k.done
	return k.write(ctx, true)
}

// writtenBy is how far into a minute the last instance writes the one before.
const writtenBy = 55 * time.Second

// loop takes one turn a minute, at a moment in it of its own: many instances do not all
// write at once.
func (k *Keeper) loop(ctx context.Context) {
	defer close(k.done)
	at := chance(writtenBy-5*time.Second) + 5*time.Second
	for {
		next := k.Now().Truncate(time.Minute).Add(at)
		if !next.After(k.Now()) {
			next = next.Add(time.Minute)
		}
		timer := time.NewTimer(next.Sub(k.Now()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		k.forget()
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		if err := k.turn(limited); err != nil && ctx.Err() == nil {
			k.Log.Warn("history: not written, it is tried again in a minute", "err", err)
		}
		cancel()
	}
}

func chance(span time.Duration) time.Duration {
	n, err := rand.Int(rand.Reader, big.NewInt(int64(span)))
	if err != nil {
		return 0
	}
	return time.Duration(n.Int64())
}

// turn makes the one transaction of this minute, or none where there is nothing to do.
func (k *Keeper) turn(ctx context.Context) error {
	switch {
	case len(k.doomed) > 0:
		ops := k.doomed
		k.doomed = nil
		_, err := k.Table.Transact(ctx, partition, ops)
		if storage.Is(err, storage.NotFound) { // another instance was faster
			return nil
		}
		return err
	case k.Now().Sub(k.began) >= settled && k.clear.Swap(false):
		var err error
		k.doomed, err = old(ctx, k.Table, k.Now())
		return err
	}
	return k.write(ctx, false)
}

// write writes the oldest hour of which there is something new.
func (k *Keeper) write(ctx context.Context, unfinished bool) error {
	minutes := k.Recorder.take(unfinished)
	for len(minutes) > 0 {
		hour, n := minutes[0].At.Truncate(time.Hour), 0
		for n < len(minutes) && minutes[n].At.Truncate(time.Hour).Equal(hour) {
			n++
		}
		if state := rowKey(hour, minutes[n-1].At.String()); state != k.written {
			if err := write(ctx, k.Table, k.instance, hour, minutes[:n]); err != nil {
				return err
			}
			k.written = state
			if n < len(minutes) && !unfinished {
				k.Recorder.drop(hour.Add(time.Hour))
				return nil // the rest has its own turn
			}
		} else if n < len(minutes) {
			k.Recorder.drop(hour.Add(time.Hour))
		}
		minutes = minutes[n:]
	}
	return nil
}

// view is the history as last read.
type view struct {
	mu     sync.Mutex
	others byTime // nil = nothing was read, or it was let go
	own    byTime
	at     time.Time // when it was read
	from   time.Time
}
