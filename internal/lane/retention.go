package lane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// Retention removes messages that are final and old. It walks each lane's log from a place of its
// own (!swept), a thousand rows a page, and removes as many messages with one transaction as it
// can hold. The walk passes over old messages that have to stay (dead ones, waiting ones, those
// that storage refuses to remove); a new walk begins each day and looks at these again.
type Retention struct {
	Store     *Store
	KeepFinal time.Duration // for delivered, cancelled, superseded: after they became so
	KeepDead  time.Duration // for dead ones
	TimeShare time.Duration // the time after which a Run leaves the rest to the next one
	Log       *slog.Logger  // nil = nothing is logged

	// OnRemoved, unless nil, is called with the number of removed messages, and the number of
	// messages and bodies that storage refused to remove. It must be safe for concurrent use.
	OnRemoved func(removed, refused int)

	nextEpoch *Store // of a lane whose epoch is over: the store of the epoch that followed
}

const (
	// walkInterval is the time after which a walk that has reached the young starts anew.
	walkInterval = 24 * time.Hour
	// removalRate is how many rows a second a Run removes of one lane: half of what a
	// partition takes, so that appends and commits find room while removal is behind.
	removalRate = 1000
	// removalWait is how long the walk waits for a delivered message that is too young. It passes
	// over messages that are younger than that, and removes them a day later.
	removalWait = time.Hour
	// A Run has a cost of its own, which the messages it removes share: the walk comes back soon
	// only if it removed many.
	idlePause = time.Hour
	busyPause = 5 * time.Minute
	busyRun   = 1000
	// movingPause is the pause while another process is at work: retention in the same lane, or a
	// change of the number of lanes.
	movingPause = time.Minute
)

// errOtherProcess means that another process removes messages of the same lane.
var errOtherProcess = errors.New("another process removes messages of the lane")

// RunLane removes a lane's share of old messages. It returns when there is more to do; zero = call again
// soon.
func (r *Retention) RunLane(ctx context.Context, lane int) (time.Time, error) {
	control, err := r.Store.ReadControl(ctx, lane)
	if err != nil {
		return time.Time{}, err
	}
	now := r.Store.Now()
	if control.Tail.IsClosed && r.nextEpoch == nil {
		return now.Add(movingPause), nil // it is being copied; Earlier will remove it soon
	}
	walk := control.retentionWalk(now)
	if walk.nextAt.After(now) {
		return walk.nextAt, nil // another process was here
	}
	t := &retentionRun{Retention: r, lane: lane, cursor: control.Tail.Cursor, walk: walk, began: time.Now()}
	next, err := t.walkPages(ctx)
	if errors.Is(err, errOtherProcess) {
		return now.Add(movingPause), nil // its place is further than ours
	}
	t.walk.nextAt = next
	if t.walk == walk {
		return next, err
	}
	return next, errors.Join(err, r.saveWalk(ctx, lane, t.walk))
}

// retentionWalk is the row !swept. It is a note, which each look at the lane reads with the control
// rows.
type retentionWalk struct {
	seq       int64 // looked at up to here
	startedAt time.Time
	nextAt    time.Time // nothing has to be done before; zero = not known
}

// retentionWalk returns how far retention has come.
func (c Control) retentionWalk(now time.Time) retentionWalk {
	for _, r := range c.markers {
		if r.Key != rows.RetentionKey {
			continue
		}
		v := r.Values
		w := retentionWalk{seq: rows.Seq.Of(v), startedAt: rows.WalkStartedAt.Of(v), nextAt: rows.WalkNextAt.Of(v)}
		if w.nextAt.After(now.Add(2 * walkInterval)) { // written by a clock that was ahead
			w.nextAt = time.Time{}
		}
		return w
	}
	return retentionWalk{startedAt: now}
}

// saveWalk writes the position of the walk. Two processes at once do no harm: either position is right.
func (r *Retention) saveWalk(ctx context.Context, lane int, w retentionWalk) error {
	_, err := r.Store.Table.Transact(ctx, r.Store.partitionOf(lane),
		[]storage.Op{{Kind: storage.Upsert, Key: rows.RetentionKey,
			Values: rows.Sparse(rows.Seq.Is(w.seq), rows.WalkStartedAt.Is(w.startedAt), rows.WalkNextAt.Is(w.nextAt))}})
	return err
}

// retentionRun is one Run in a lane.
type retentionRun struct {
	*Retention
	lane    int
	cursor  int64 // nothing from here on is looked at
	walk    retentionWalk
	began   time.Time
	removed int
}

// walkPages goes page by page until the walk has come to a message that is too young, or its share of
// time is over. It returns when to go on; zero = soon.
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

// reportRefused logs and counts a message or a body that storage refuses to remove. It holds up no
// other: the next walk tries again.
func (r *Retention) reportRefused(lane int, seq int64, err error) {
	if r.Log != nil {
		r.Log.Warn("retention: message kept, storage refuses to remove it", "lane", lane, "seq", seq, "err", err)
	}
	r.countRemoved(0, 1)
}

func (r *Retention) countRemoved(removed, refused int) {
	if r.OnRemoved != nil {
		r.OnRemoved(removed, refused)
	}
}
