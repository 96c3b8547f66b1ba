package sweep

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// A round cleans lanes in turns: in its turn, a lane is freed of old messages and bodies. lanesAtOnce is the
	// number of lanes that have their turns at the same time.
	lanesAtOnce = 8
	// A round begins turns of lanes until roundLimit is over. It then works on the lanes of earlier epochs, again for
	// at most roundLimit. roundLimit is shorter than the minute between two sweeps.
	roundLimit = 50 * time.Second
	// A turn that began within roundLimit may go on after it for at most maxOverrun.
	maxOverrun = 20 * time.Second
	// forgottenLimit limits the time that one round spends on the search for forgotten bodies. The search takes
	// place once a day, and the next rounds continue it if it has not ended.
	forgottenLimit = 5 * time.Minute
	// retryAfter is the time from a failed removal to the next attempt. It is shorter than the minute between two
	// sweeps, so the next sweep tries again.
	retryAfter = 50 * time.Second
)

// Retention removes old messages and bodies. Each method returns the time at which it will have more to remove. The
// zero time means that it has more to remove now.
type Retention interface {
	RunLane(ctx context.Context, lane int) (time.Time, error)
	RunEarlierEpochs(ctx context.Context) (time.Time, error)
	RemoveForgottenBodies(ctx context.Context) (time.Time, error)
}

// Cleaner removes messages and bodies past their retention, in the background. It does so in rounds. BeginRound
// begins a round. A process has one round at a time, and each round has a time limit. The exported fields are set
// before the first round; all except ForgottenAt are required.
type Cleaner struct {
	Retention Retention
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	// ForgottenAt is the time from which the next search for forgotten bodies may begin. The Cleaner updates it.
	ForgottenAt time.Time

	mu        sync.Mutex
	isClosed  bool
	isAwaited bool               // true = BeginRound was called since the last round began
	done      chan struct{}      // closed when the round is over and no other one follows; nil = no round is under way
	cancel    context.CancelFunc // ends the round
	lanes     map[int]*laneTurn  // by the number of the lane
	earlierAt time.Time          // the time from which a round cleans earlier epochs again
}

// laneTurn is a lane, with the time of its last turn and the time from which its next turn may begin.
type laneTurn struct {
	number         int
	lastAt, nextAt time.Time
}

// BeginRound begins a round, and returns at once. If a round is under way, one more round follows it, no matter how
// often BeginRound is called meanwhile. After Close no round begins.
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
			c.runRound(ctx)
		}
	}()
}

// nextRound reports whether a round begins now. If not, it records that no round is under way.
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

// Close ends the round that is under way, and prevents further rounds. It returns when the round has ended. If ctx
// ends before that, it returns the error of ctx. Another process continues the removal.
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

// runRound removes messages and bodies past their retention until all are removed or its time limits are over.
func (c *Cleaner) runRound(ctx context.Context) {
	c.cleanLanes(ctx)
	if !c.earlierAt.After(c.Now()) {
		c.earlierAt = c.runWithin(ctx, roundLimit, c.Retention.RunEarlierEpochs)
	}
	if !c.ForgottenAt.After(c.Now()) {
		c.ForgottenAt = c.runWithin(ctx, forgottenLimit, c.Retention.RemoveForgottenBodies)
	}
}

// runWithin calls remove with a time limit, and returns the time from which remove is to be called again.
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

// cleanLanes gives turns to the lanes that are due, until no lane is due or roundLimit is over. Up to lanesAtOnce
// lanes have their turns at the same time. The lanes with the longest time since their last turn come first.
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

// findDueLanes returns the lanes whose next turn may begin. The lane with the longest time since its last turn comes
// first.
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
		turn.nextAt = time.Time{} // the round's limit or Close ended the turn
		return
	}
	turn.nextAt = c.Now().Add(retryAfter)
	c.Logger.Warn("retention: lane left for now", "lane", turn.number, "err", err)
}
