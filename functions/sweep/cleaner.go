package sweep

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// lanesAtOnce is in how many lanes a round removes at the same time.
	lanesAtOnce = 8
	// roundLimit is what a round spends on the lanes, and again on those of earlier epochs: less
	// than the minute between two sweeps.
	roundLimit = 50 * time.Second
	// lastTurn is how far beyond roundLimit a lane's turn may reach that began before it.
	lastTurn = 20 * time.Second
	// forgottenLimit is what a round spends on forgotten bodies, once a day.
	forgottenLimit = 5 * time.Minute
	// cleanAgain is the pause before a failed removal is tried again: until the next sweep.
	cleanAgain = 50 * time.Second
)

// Retention removes old messages and bodies. Each method returns the moment before which it has
// nothing more to do; zero = call again soon.
type Retention interface {
	RunLane(ctx context.Context, lane int) (time.Time, error)
	RunEarlierEpochs(ctx context.Context) (time.Time, error)
	RemoveForgottenBodies(ctx context.Context) (time.Time, error)
}

// Cleaner removes messages and bodies past their retention, in the background: one round at a
// time in a process, each begun by Nudge and bounded in time. Its exported fields are set before
// the first Nudge; all except ForgottenAt are needed.
type Cleaner struct {
	Retention Retention
	Lanes     int
	Now       func() time.Time
	Logger    *slog.Logger

	// ForgottenAt is the moment before which forgotten bodies are not looked for.
	ForgottenAt time.Time

	mu      sync.Mutex
	closed  bool
	nudged  bool               // since the round began
	done    chan struct{}      // closed when the round is over; nil = none is under way
	cancel  context.CancelFunc // of the round
	lanes   map[int]*laneTurn
	earlier time.Time // when there is something to do in earlier epochs
}

// laneTurn holds when a lane had its last turn, and when it has the next.
type laneTurn struct {
	number    int
	had, next time.Time
}

// Nudge begins a round, and returns at once. While one is under way, another follows it.
func (c *Cleaner) Nudge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nudged = true
	if c.closed || c.done != nil {
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

// nextRound reports whether another round follows the one that has ended.
func (c *Cleaner) nextRound() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.nudged {
		c.done = nil
		return false
	}
	c.nudged = false
	return true
}

// Close ends the round that is under way, and begins no other. The next process goes on from
// there.
func (c *Cleaner) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
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

// runRound removes all that is past its retention, as far as its time allows.
func (c *Cleaner) runRound(ctx context.Context) {
	c.cleanLanes(ctx)
	if !c.earlier.After(c.Now()) {
		c.earlier = c.runWithin(ctx, roundLimit, c.Retention.RunEarlierEpochs)
	}
	if !c.ForgottenAt.After(c.Now()) {
		c.ForgottenAt = c.runWithin(ctx, forgottenLimit, c.Retention.RemoveForgottenBodies)
	}
}

// runWithin calls do with a limit of time, and returns when to call it again.
func (c *Cleaner) runWithin(ctx context.Context, limit time.Duration,
	do func(context.Context) (time.Time, error)) time.Time {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	next, err := do(limited)
	if err == nil {
		return next
	}
	if limited.Err() == nil {
		c.Logger.Warn("retention: left for now", "err", err)
	}
	return c.Now().Add(cleanAgain)
}

// cleanLanes cleans the lanes that are due, a few at a time and in turn, until all are clean
// or the time is over. Those that waited longest come first.
func (c *Cleaner) cleanLanes(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, roundLimit+lastTurn)
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
				if c.cleanLane(limited, turn); !turn.next.After(c.Now()) {
					mu.Lock()
					due = append(due, turn)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
}

// findDueLanes returns the lanes whose turn has come.
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
		if !turn.next.After(c.Now()) {
			due = append(due, turn)
		}
	}
	slices.SortStableFunc(due, func(a, b *laneTurn) int { return a.had.Compare(b.had) })
	return due
}

func (c *Cleaner) cleanLane(ctx context.Context, turn *laneTurn) {
	next, err := c.Retention.RunLane(ctx, turn.number)
	turn.had, turn.next = c.Now(), next
	if err == nil {
		return
	}
	if ctx.Err() != nil {
		turn.next = time.Time{} // cut off by the round's limit
		return
	}
	turn.next = c.Now().Add(cleanAgain)
	c.Logger.Warn("retention: lane left for now", "lane", turn.number, "err", err)
}
