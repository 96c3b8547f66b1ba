package lane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Retention removes final messages whose time to be kept is over. It reads each lane's log from a stored position (the
// row !swept), in pages of a thousand rows. It removes as many messages with one transaction as fit. It passes over
// old messages that have to stay: dead messages, waiting messages, and messages that storage refuses to remove. One
// pass over the log is a walk. A new walk begins each day at the beginning of the log, and checks those messages again.
type Retention struct {
	Store     *Store
	KeepFinal time.Duration // a final message that is not dead is kept for this time after it became final
	KeepDead  time.Duration // a dead message is kept for this time after it died, or after the last request about it
	TimeShare time.Duration // after this time RunLane leaves the rest to the next run
	Log       *slog.Logger  // nil = nothing is logged

	// OnRemoved is called when messages were removed, or when storage has refused a removal; nil = it is not called.
	// removed is the number of removed messages. refused is the number of messages and bodies that storage has refused
	// to remove. OnRemoved must be safe for concurrent use.
	OnRemoved func(removed, refused int)

	nextEpoch *Store // if Store is of an earlier epoch: the store of the next epoch; nil = Store is of the open epoch
}

const (
	// walkInterval is the time from the start of one walk to the start of the next.
	walkInterval = 24 * time.Hour
	// removalRate is how many rows a second RunLane removes from one lane: half of the rate that a partition
	// can take, so that appends and commits are not slowed down while removal is behind.
	removalRate = 1000
	// removalWait is the longest wait of a walk for a final message whose retention is nearly over. A walk never waits
	// for a dead message. It passes over a message whose retention ends later, and the walk of the next day removes
	// that message.
	removalWait = time.Hour
	// idlePause is the pause after a run that has removed fewer messages than busyRun. busyPause is the pause after any
	// other run. Each run makes some requests of its own, so runs should be rare and remove many messages.
	idlePause = time.Hour
	busyPause = 5 * time.Minute
	busyRun   = 1000
	// movingPause is the pause while another process works on the lane, for retention or for a change of the number of
	// lanes.
	movingPause = time.Minute
)

// errOtherProcess means that another process removes messages of the same lane, or searches for forgotten bodies.
var errOtherProcess = errors.New("another process removes messages of the lane")

// RunLane removes old messages of a lane for a limited time. It returns the time at which there is more to do; zero =
// soon.
func (r *Retention) RunLane(ctx context.Context, lane int) (time.Time, error) {
	control, err := r.Store.ReadControl(ctx, lane)
	if err != nil {
		return time.Time{}, err
	}
	now := r.Store.Now()
	if control.Tail.IsClosed && r.nextEpoch == nil {
		return now.Add(movingPause), nil // the lane is being copied; RunEarlierEpochs will remove its messages
	}
	walk := control.retentionWalk(now)
	if walk.nextAt.After(now) {
		return walk.nextAt, nil // an earlier run, perhaps of another process, has left no work before that time
	}
	t := &retentionRun{Retention: r, lane: lane, cursor: control.Tail.Cursor, walk: walk, began: time.Now()}
	next, err := t.walkPages(ctx)
	if errors.Is(err, errOtherProcess) {
		return now.Add(movingPause), nil // the other process writes its position, which is ahead of ours
	}
	t.walk.nextAt = next
	if t.walk == walk {
		return next, err
	}
	return next, errors.Join(err, r.saveWalk(ctx, lane, t.walk))
}

// retentionWalk is the row !swept. It is a marker: each reader of the control rows reads it.
type retentionWalk struct {
	seq       int64 // messages up to this number were checked
	startedAt time.Time
	nextAt    time.Time // before this time there is nothing to do; zero = not known
}

// retentionWalk returns the stored position of retention.
func (c Control) retentionWalk(now time.Time) retentionWalk {
	r, found := c.Marker(rows.RetentionKey)
	if !found {
		return retentionWalk{startedAt: now}
	}
	v := r.Values
	w := retentionWalk{seq: rows.Seq.Of(v), startedAt: rows.WalkStartedAt.Of(v), nextAt: rows.WalkNextAt.Of(v)}
	if w.nextAt.After(now.Add(2 * walkInterval)) { // written by a clock that was ahead
		w.nextAt = time.Time{}
	}
	return w
}

// saveWalk writes the position of the walk. Two processes may write it at the same time: both positions are
// valid.
func (r *Retention) saveWalk(ctx context.Context, lane int, w retentionWalk) error {
	_, err := r.Store.Table.Transact(ctx, r.Store.Partition(lane),
		[]storage.Op{{Kind: storage.Upsert, Key: rows.RetentionKey,
			Values: rows.Sparse(rows.Seq.Is(w.seq), rows.WalkStartedAt.Is(w.startedAt), rows.WalkNextAt.Is(w.nextAt))}})
	return err
}

// retentionRun is one run of RunLane.
type retentionRun struct {
	*Retention
	lane    int
	cursor  int64 // messages from here on are not checked
	walk    retentionWalk
	began   time.Time
	removed int
}

// walkPages checks page after page. It stops at a message that is too young, at the end of the log, or when its time
// is over. It returns the time at which to continue; zero = soon.
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
			return earlierOf(laterOf(young, now.Add(t.pauseLength())), now.Add(walkInterval)), nil
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

// reportRefused logs and counts a message that storage refuses to remove, or whose body storage refuses to remove.
// The walk goes on, and the next walk tries again.
func (r *Retention) reportRefused(lane int, seq int64, err error) {
	if r.Log != nil {
		r.Log.Warn("retention: message kept, storage refuses to remove it", "lane", lane, "seq", seq, "err", err)
	}
	r.countRemoved(0, 1)
}

// countRemoved calls OnRemoved.
func (r *Retention) countRemoved(removed, refused int) {
	if r.OnRemoved != nil {
		r.OnRemoved(removed, refused)
	}
}
