package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// A commit without an urgent change begins commitInterval after its first change, or earlier if
	// there are commitOutcomes changes.
	commitInterval = 100 * time.Millisecond
	commitOutcomes = 32
	// maxUncommitted bounds the deliveries that a crash can repeat.
	maxUncommitted = 64
	// While maxParked changes are uncommitted, no further message is parked (moved from the log
	// into its key's queue). A transaction takes at most 49 parked messages. So there are enough
	// changes for the next transaction while one is written.
	maxParked = 128
)

// committer writes changes in the order in which they were decided. One transaction can have
// several changes. While the committer writes, other messages are sent. A key is pending while a
// change with that key (lane.Change.Key) is not committed.
type committer struct {
	writer *lane.Writer
	now    func() time.Time
	// called once, if a commit fails or ctx ends: then committing ends
	onFailed    func(error)
	onCommitted func(*lane.Change) // called with each change that was written; must return at once

	mu          sync.Mutex
	pending     []commitRequest
	since       time.Time      // commitInterval counts from this time
	isUrgent    bool           // all pending changes are to be committed at once
	uncommitted int            // number of changes that wait or are being written
	pendingKeys map[string]int // number of uncommitted changes by key hash
	err         error          // the error that ended committing; nil = none
	progress    chan struct{}  // closed and replaced at each commit, refusal and failure

	wake signal
	stop chan struct{}
	done chan struct{}
}

type commitRequest struct {
	change   *lane.Change
	onResult func(error) // see addMove; nil = the change moves no due messages
}

// startCommitter starts a committer. At the end of ctx the committer cuts its commit off and stops.
// To stop the committer after all changes are committed, call closeInOrder.
func startCommitter(ctx context.Context, w *lane.Writer, now func() time.Time, failed func(error),
	wrote func(*lane.Change),
) *committer {
	c := &committer{
		writer: w, now: now, onFailed: failed, onCommitted: wrote, pendingKeys: map[string]int{},
		progress: make(chan struct{}), wake: newSignal(), stop: make(chan struct{}),
		done: make(chan struct{}),
	}

	go c.runLoop(ctx)
	return c
}

// addChange hands over a change. An urgent change is committed at once, with all changes before it.
func (c *committer) addChange(ch *lane.Change, urgent bool) {
	c.enqueueRequest(commitRequest{change: ch}, urgent)
}

// addMove hands over a change that moves due messages. The change is committed at once, with all
// changes before it. The result is one of these:
//
//   - The change is committed: onResult is called with nil.
//   - A message of the change is no longer due, so storage refuses the change: onResult is called
//     with an error that lane.NoLongerDue recognizes. The other changes are written without this
//     change.
//   - Committing ends with another error: onResult is not called.
//
// onResult must return at once.
func (c *committer) addMove(ch *lane.Change, onResult func(error)) {
	c.enqueueRequest(commitRequest{ch, onResult}, true)
}

func (c *committer) enqueueRequest(q commitRequest, urgent bool) {
	ch := q.change
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.since = c.now()
	}

	c.pending = append(c.pending, q)
	c.uncommitted++
	if ch.Key != "" {
		c.pendingKeys[ch.Key]++
	}

	c.isUrgent = c.isUrgent || urgent

	// If other changes wait already, the loop will commit this change together with them, at the
	// time that is already set. The loop must be woken only if the commit has to begin now.
	joins := len(c.pending) > 1 && len(c.pending) < commitOutcomes && !c.isUrgent
	c.mu.Unlock()
	if !joins {
		c.wake.send()
	}
}

// flushAll makes the committer begin to commit all changes. It does not wait for the commit.
func (c *committer) flushAll() {
	c.mu.Lock()
	c.isUrgent = true
	c.mu.Unlock()
	c.wake.send()
}

// isKeyPending reports whether a key has a change that is not committed.
func (c *committer) isKeyPending(keyHash string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pendingKeys[keyHash] > 0
}

// countPending returns the number of changes that are not committed.
func (c *committer) countPending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uncommitted
}

// nextProgress returns a channel that is closed at the next commit, refusal or failure.
func (c *committer) nextProgress() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}

// waitBelow waits until fewer than n changes are uncommitted. Meanwhile the committer commits
// changes without delay. waitBelow returns the error that ended committing, or the cause with which
// ctx ended.
func (c *committer) waitBelow(ctx context.Context, n int) error {
	for {
		progress, err := c.flushDown(n)
		if progress == nil {
			return err
		}

		select {
		case <-progress:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// flushDown makes the committer commit all changes now, if n or more are uncommitted. It returns a
// channel that is closed at the next commit, refusal or failure. The channel is nil if fewer than n
// changes are uncommitted, or if committing has ended with err.
func (c *committer) flushDown(n int) (progress <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.uncommitted < n {
		return nil, c.err
	}

	c.isUrgent = true
	c.wake.send()

	return c.progress, nil
}

// closeInOrder waits until all changes are committed, or until ctx ends. Then it ends the
// committer's goroutine. It is called once.
func (c *committer) closeInOrder(ctx context.Context) error {
	err := c.waitBelow(ctx, 1)
	close(c.stop)
	return err
}

// runLoop commits until closeInOrder ends it, or until commitUntilEnd fails.
func (c *committer) runLoop(ctx context.Context) {
	defer close(c.done)
	if err := panics.Catch(func() error { return c.commitUntilEnd(ctx) }); err != nil {
		c.failAll(err)
	}
}

func (c *committer) commitUntilEnd(ctx context.Context) error {
	timer := time.NewTimer(commitInterval)
	defer timer.Stop()

	for {
		requests, wait := c.takeBatch()
		if requests == nil {
			timer.Reset(wait)
			select {
			case <-c.wake:
			case <-timer.C:
			case <-c.stop:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}

			continue
		}

		if err := c.commitRequests(ctx, requests); err != nil {
			return err
		}
	}
}

// takeBatch takes the requests of the next transaction. If it is too early for a transaction,
// takeBatch returns nil and the time to wait.
func (c *committer) takeBatch() (requests []commitRequest, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.pending) == 0 {
		c.isUrgent = false
		return nil, time.Hour
	}

	age := c.now().Sub(c.since)
	if !c.isUrgent && len(c.pending) < commitOutcomes && age < commitInterval {
		return nil, commitInterval - age
	}

	b, n := &lane.Transaction{}, 0
	for n < len(c.pending) && b.TryAdd(c.pending[n].change) {
		n++
	}

	requests, c.pending = c.pending[:n:n], c.pending[n:]
	c.since = c.now()

	return requests, 0
}

// commitRequests writes requests in one transaction. Storage refuses the transaction if a change
// moves a message that is no longer scheduled. Then commitRequests reports this change as refused,
// and writes the others in another transaction.
func (c *committer) commitRequests(ctx context.Context, requests []commitRequest) error {
	for len(requests) > 0 {
		b := &lane.Transaction{}
		for _, q := range requests {
			b.TryAdd(q.change)
		}

		err := c.writer.Commit(ctx, b)
		if err == nil {
			c.finishRequests(requests, nil)
			return nil
		}

		due, ok := lane.NoLongerDue(err)
		i := slices.IndexFunc(requests, func(q commitRequest) bool {
			return q.onResult != nil && q.change.Releases(due)
		})
		if !ok || i < 0 {
			return err
		}

		c.finishRequests(requests[i:i+1], err)
		requests = slices.Delete(slices.Clone(requests), i, i+1)
	}

	return nil
}

// finishRequests reports that requests were written, or that they were refused with err. In both
// cases the requests no longer make their keys pending.
func (c *committer) finishRequests(requests []commitRequest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, q := range requests {
		c.uncommitted--
		if err == nil {
			c.onCommitted(q.change)
		}

		if q.onResult != nil {
			q.onResult(err)
		}

		key := q.change.Key
		if key == "" {
			continue
		}

		if c.pendingKeys[key]--; c.pendingKeys[key] == 0 {
			delete(c.pendingKeys, key)
		}
	}

	close(c.progress)
	c.progress = make(chan struct{})
}

func (c *committer) failAll(err error) {
	c.mu.Lock()
	c.err = err
	close(c.progress)
	c.progress = make(chan struct{})
	c.mu.Unlock()
	c.onFailed(err)
}
