package lane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"weir/internal/clock"
	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Retention removes expired messages: final messages whose time to be kept is over. One pass over a
// lane's log, in pages of a thousand rows, is a walk. The position of the walk is stored in the row
// !swept. Each day a new walk begins at the start of the log.
//
// A walk passes over old messages that have to stay: dead messages, waiting messages, and messages
// that storage refuses to remove. The next walk checks these messages again.
type Retention struct {
	Store     *Store
	KeepFinal time.Duration // how long a final message is kept, if it is not dead
	// how long a dead message is kept after its death, or after a later request about it
	KeepDead  time.Duration
	TimeShare time.Duration // how long one call of RunLane works; the next call continues
	Log       *slog.Logger  // nil = nothing is logged

	// OnRemoved is called after messages were removed, and after storage has refused a removal; nil
	// = it is not called. removed is the number of removed messages. refused is the number of
	// messages and bodies that storage has refused to remove. OnRemoved must be safe for concurrent
	// use.
	OnRemoved func(removed, refused int)

	nextEpoch *Store // the store of the epoch after Store's epoch; nil = Store has the open epoch
}

const (
	// walkInterval is the time from the start of one walk to the start of the next walk.
	walkInterval = 24 * time.Hour
	// removalRate is the number of rows per second that RunLane removes from one lane. A partition
	// can take twice as many, so appends and commits have the other half.
	removalRate = 1000
	// removalWait applies to messages that were accepted long ago but became final late. It is the
	// longest time for which a walk waits until such a message can be removed. If the wait would be
	// longer, or the message is dead, the walk passes over the message, and a later walk removes
	// it.
	removalWait = time.Hour
	// idlePause is the pause after a run that has removed fewer messages than busyRun. busyPause is
	// the pause after any other run. Each run needs some requests of its own, so a few long runs
	// are cheaper than many short runs.
	idlePause = time.Hour
	busyPause = 5 * time.Minute
	busyRun   = 1000
	// movingPause is the pause if another process removes messages from the lane, or if the number
	// of lanes is being changed.
	movingPause = time.Minute
)

// errOtherProcess means that another process removes messages of the same lane, or searches for
// forgotten bodies.
var errOtherProcess = errors.New("another process removes messages of the lane")

// RunLane removes expired messages of a lane, for about TimeShare. It returns the time at which it
// is to be called again; zero = soon.
func (r *Retention) RunLane(ctx context.Context, lane int) (time.Time, error) {
	control, err := r.Store.ReadControl(ctx, lane)
	if err != nil {
		return time.Time{}, err
	}

	now := r.Store.Now()
	if control.Tail.IsClosed && r.nextEpoch == nil {
		// the lane is being copied; RunEarlierEpochs will remove its messages
		return now.Add(movingPause), nil
	}

	walk := control.retentionWalk(now)
	if walk.nextAt.After(now) {
		// an earlier run, perhaps of another process, has found no work before that time
		return walk.nextAt, nil
	}

	t := &retentionRun{Retention: r, lane: lane, cursor: control.Tail.Cursor, walk: walk,
		began: time.Now()}
	next, err := t.walkPages(ctx)
	if err == nil && t.nextEpoch == nil {
		err = t.removeLastDeliveries(ctx)
	}

	if errors.Is(err, errOtherProcess) {
		// the other process stores its own position, which is later in the log
		return now.Add(movingPause), nil
	}

	t.walk.nextAt = next
	if t.walk == walk {
		return next, err
	}

	return next, errors.Join(err, r.saveWalk(ctx, lane, t.walk))
}

// retentionWalk is the state of the present walk. The row !swept stores it; this row is a marker.
type retentionWalk struct {
	seq       int64 // messages up to this number were checked
	startedAt time.Time
	nextAt    time.Time // before this time there is nothing to do; zero = not known
}

// retentionWalk returns the stored walk or, if no walk is stored, a walk that starts now.
func (c Control) retentionWalk(now time.Time) retentionWalk {
	r, found := c.Marker(rows.RetentionKey)
	if !found {
		return retentionWalk{startedAt: now}
	}

	v := r.Values
	w := retentionWalk{seq: rows.Seq.Of(v), startedAt: rows.WalkStartedAt.Of(v),
		nextAt: rows.WalkNextAt.Of(v)}
	if w.nextAt.After(now.Add(2 * walkInterval)) { // written by a process whose clock was fast
		w.nextAt = time.Time{}
	}

	return w
}

// saveWalk stores the state of the walk, without a condition. If two processes store it at the same
// time, the walk can continue from either position.
func (r *Retention) saveWalk(ctx context.Context, lane int, w retentionWalk) error {
	_, err := r.Store.Table.Transact(ctx, r.Store.Partition(lane),
		[]storage.Op{{Kind: storage.Upsert, Key: rows.RetentionKey,
			Values: rows.Sparse(rows.Seq.Is(w.seq), rows.WalkStartedAt.Is(w.startedAt),
				rows.WalkNextAt.Is(w.nextAt))}})
	return err
}

// retentionRun is one call of RunLane.
type retentionRun struct {
	*Retention
	lane    int
	cursor  int64 // messages from this number on are not checked
	walk    retentionWalk
	began   time.Time
	removed int
}

// walkPages checks page after page. It stops at a message that is too young to be removed, at the
// end of the log, or when the time of the run is over. It returns the time at which to continue;
// zero = soon.
func (t *retentionRun) walkPages(ctx context.Context) (time.Time, error) {
	for {
		young, err := t.removePage(ctx)
		switch now := t.Store.Now(); {
		case err != nil || t.isSpent():
			return time.Time{}, err
		case young.IsZero():
		case !t.walk.startedAt.Add(walkInterval).After(now):
			t.walk = retentionWalk{startedAt: now}
		default:
			return clock.Earlier(clock.Later(young, now.Add(t.pauseLength())), now.Add(walkInterval)), nil
		}
	}
}

func (t *retentionRun) isSpent() bool { return time.Since(t.began) >= t.TimeShare }

func (t *retentionRun) pauseLength() time.Duration {
	if t.removed >= busyRun {
		return busyPause
	}
	return idlePause
}

// reportRefused logs and counts a message that stays, because storage refuses to remove the message
// or its body. The next walk tries again.
func (r *Retention) reportRefused(lane int, seq int64, err error) {
	if r.Log != nil {
		r.Log.Warn("retention: message kept, storage refuses to remove it", "lane", lane, "seq",
			seq, "err", err)
	}
	r.countRemoved(0, 1)
}

func (r *Retention) countRemoved(removed, refused int) {
	if r.OnRemoved != nil {
		r.OnRemoved(removed, refused)
	}
}
