package sweep

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weir/internal/panics"
)

const (
	// A turn of a lane is one call of Retention.RunLane. At most lanesAtOnce turns run at the same time.
	lanesAtOnce = 8
	// roundLimit is the time after which a round begins no further turn. It is shorter than the minute between two
	// sweeps. A call of Retention.RunEarlierEpochs has the same limit.
	roundLimit = 50 * time.Second
	// A turn that still runs when roundLimit is over can go on for at most maxOverrun.
	maxOverrun = 20 * time.Second
	// forgottenLimit limits one call of Retention.RemoveForgottenBodies.
	forgottenLimit = 5 * time.Minute
	// retryAfter is the shortest time from a failed call of Retention to the next try. It is shorter than the minute
	// between two sweeps, so that the next sweep tries again.
	retryAfter = 50 * time.Second
)

// Retention removes old messages and bodies. Each method returns the time from which to call the method again; the
// zero time means at once. A forgotten body is a stored body to which no message refers.
type Retention interface {
	RunLane(ctx context.Context, lane int) (time.Time, error)
	RunEarlierEpochs(ctx context.Context) (time.Time, error)
	RemoveForgottenBodies(ctx context.Context) (time.Time, error)
}

// Cleaner removes messages and bodies past their retention, in rounds that run in the background. A Cleaner runs one
// round at a time. The exported fields are set before the first round; all except ForgottenAt are required.
type Cleaner struct {
	Retention Retention
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	// ForgottenAt is the earliest time of the next call of RemoveForgottenBodies. The Cleaner updates this field.
	ForgottenAt time.Time

	mu        sync.Mutex
	isClosed  bool
	isAwaited bool               // true = another round must begin
	done      chan struct{}      // is closed when no further round follows; nil = no round is under way
	cancel    context.CancelFunc // ends the round under way
	lanes     map[int]*laneTurn  // by lane number
	earlierAt time.Time          // the earliest time of the next call of RunEarlierEpochs
}

// laneTurn has the end of a lane's last turn, and the earliest time of the lane's next turn.
type laneTurn struct {
	number         int
	lastAt, nextAt time.Time
}

// BeginRound begins a round and returns at once. If a round is under way, exactly one more round follows, however often
// BeginRound is called meanwhile. After Close no round begins.
func (c *Cleaner) BeginRound() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isAwaited = true
	if c.isClosed || c.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.done, c.cancel = done, cancel
	go func() {
		defer close(done)
		defer cancel()
		for c.nextRound() {
			panics.Repeat(ctx, c.Logger, "retention: round", func() { c.runRound(ctx) })
		}
	}()
}

// nextRound reports whether another round begins, and updates the state of the Cleaner accordingly.
func (c *Cleaner) nextRound() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed || !c.isAwaited {
		c.done = nil
		return false
	}
	c.isAwaited = false
	return true
}

// Close ends the round under way, and prevents further rounds. If ctx ends before the round has ended, Close returns
// the error of ctx.
func (c *Cleaner) Close(ctx context.Context) error {
	c.mu.Lock()
	c.isClosed = true
	done, cancel := c.done, c.cancel
	c.mu.Unlock()
	if done == nil {
		return nil
	}
	cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Cleaner) runRound(ctx context.Context) {
	c.cleanLanes(ctx)
	if !c.earlierAt.After(c.Now()) {
		c.earlierAt = c.runWithin(ctx, roundLimit, c.Retention.RunEarlierEpochs)
	}
	if !c.ForgottenAt.After(c.Now()) {
		c.ForgottenAt = c.runWithin(ctx, forgottenLimit, c.Retention.RemoveForgottenBodies)
	}
}

// runWithin calls remove with a time limit, and returns the earliest time of the next call.
func (c *Cleaner) runWithin(ctx context.Context, limit time.Duration,
	remove func(context.Context) (time.Time, error)) time.Time {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	next, err := remove(limited)
	if err == nil {
		return next
	}
	if limited.Err() == nil {
		c.Logger.Warn("retention: left for now", "err", err)
	}
	return c.Now().Add(retryAfter)
}

// cleanLanes runs turns of due lanes until no lane is due or roundLimit is over. A lane that is due again after its
// turn goes to the end of the queue, so that a lane with many old messages does not keep other lanes waiting.
func (c *Cleaner) cleanLanes(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, roundLimit+maxOverrun)
	defer cancel()
	began, due := time.Now(), c.findDueLanes()
	var mu sync.Mutex
	take := func() *laneTurn {
		mu.Lock()
		defer mu.Unlock()
		if len(due) == 0 || time.Since(began) >= roundLimit || limited.Err() != nil {
			return nil
		}
		turn := due[0]
		due = due[1:]
		return turn
	}
	var workers sync.WaitGroup
	for range lanesAtOnce {
		workers.Go(func() {
			defer panics.Log(c.Logger, "retention: turns of lanes")
			for turn := take(); turn != nil; turn = take() {
				if c.cleanLane(limited, turn); !turn.nextAt.After(c.Now()) {
					mu.Lock()
					due = append(due, turn)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
}

// findDueLanes returns the lanes whose next turn can begin now. The lane with the oldest last turn comes first.
func (c *Cleaner) findDueLanes() []*laneTurn {
	if c.lanes == nil {
		c.lanes = map[int]*laneTurn{}
	}
	var due []*laneTurn
	for number := range c.Lanes {
		turn := c.lanes[number]
		if turn == nil {
			turn = &laneTurn{number: number}
			c.lanes[number] = turn
		}
		if !turn.nextAt.After(c.Now()) {
			due = append(due, turn)
		}
	}
	slices.SortStableFunc(due, func(a, b *laneTurn) int { return a.lastAt.Compare(b.lastAt) })
	return due
}

func (c *Cleaner) cleanLane(ctx context.Context, turn *laneTurn) {
	next, err := c.Retention.RunLane(ctx, turn.number)
	turn.lastAt, turn.nextAt = c.Now(), next
	if err == nil {
		return
	}
	if ctx.Err() != nil {
		turn.nextAt = time.Time{} // the time limit or Close ended the turn, so the lane is due in the next round
		return
	}
	turn.nextAt = c.Now().Add(retryAfter)
	c.Logger.Warn("retention: lane left for now", "lane", turn.number, "err", err)
}
