package drain

import (
	"context"
	"sync"
	"time"

	"weir/internal/lane"
)

const (
	// While messages flow, a commit starts after this time or this many outcomes.
	commitInterval = 100 * time.Millisecond
	commitOutcomes = 32
	// maxUncommitted bounds what a crash can repeat.
	maxUncommitted = 64
)

// committer writes changes in the order in which they were decided, in batches, beside
// the deliveries. While a change of a key is not committed, the key is closed.
type committer struct {
	writer *lane.Writer
	now    func() time.Time
	failed func(error)        // called once, when nothing more can be committed
	wrote  func(*lane.Change) // called with each change that was written; must return at once

	mu          sync.Mutex
	pending     []request
	since       time.Time // when the oldest of pending came
	urgent      bool
	uncommitted int // pending or in flight
	closed      map[string]int
	err         error
	progress    chan struct{} // closed and replaced at each commit

	kick chan struct{}
	stop chan struct{}
	done chan struct{}
}

// request is a change to be committed.
type request struct {
	change *lane.Change
	alone  chan error // where set: in a transaction of its own, which may be refused
}

// startCommitter begins to commit; ctx ends it hard, close ends it in order.
func startCommitter(ctx context.Context, w *lane.Writer, now func() time.Time, failed func(error), wrote func(*lane.Change)) *committer {
	c := &committer{
		writer: w, now: now, failed: failed, wrote: wrote, closed: map[string]int{}, progress: make(chan struct{}),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go c.loop(ctx)
	return c
}

// add hands over a change. An urgent one is committed at once, with all before it.
func (c *committer) add(ch *lane.Change, urgent bool) { c.ask(request{change: ch}, urgent) }

// try commits a change in a transaction of its own, after all that came before it, and says
// what came of it: an error that lane.NotDue knows means that nothing of it was written, and
// harms nothing else.
func (c *committer) try(ctx context.Context, ch *lane.Change) error {
	alone := make(chan error, 1)
	c.ask(request{ch, alone}, true)
	select {
	case err := <-alone:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *committer) ask(q request, urgent bool) {
	ch := q.change
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.since = c.now()
	}
	c.pending = append(c.pending, q)
	c.uncommitted++
	if ch.Key != "" {
		c.closed[ch.Key]++
	}
	c.urgent = c.urgent || urgent
	c.mu.Unlock()
	c.nudge()
}

// flush asks for everything to be committed now.
func (c *committer) flush() {
	c.mu.Lock()
	c.urgent = true
	c.mu.Unlock()
	c.nudge()
}

func (c *committer) nudge() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// isClosed says whether a key has a change that is not committed.
func (c *committer) isClosed(keyHash string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed[keyHash] > 0
}

// load is the number of changes not committed.
func (c *committer) load() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uncommitted
}

// waitBelow flushes and waits until fewer than n changes are uncommitted. It returns the
// error that ended committing, or ctx's.
func (c *committer) waitBelow(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		progress, uncommitted, err := c.progress, c.uncommitted, c.err
		c.urgent = c.urgent || uncommitted >= n
		c.mu.Unlock()
		if err != nil || uncommitted < n {
			return err
		}
		c.nudge()
		select {
		case <-progress:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// close commits what is left and ends the goroutine. Call it once, with a limit on ctx.
func (c *committer) close(ctx context.Context) error {
	err := c.waitBelow(ctx, 1)
	close(c.stop)
	return err
}

func (c *committer) loop(ctx context.Context) {
	defer close(c.done)
	timer := time.NewTimer(commitInterval)
	defer timer.Stop()
	for {
		batch, alone, wait := c.next()
		if batch == nil {
			timer.Reset(wait)
			select {
			case <-c.kick:
			case <-timer.C:
			case <-c.stop:
				return
			case <-ctx.Done():
				c.fail(context.Cause(ctx))
				return
			}
			continue
		}
		err := c.writer.Commit(ctx, batch)
		if _, refused := lane.NotDue(err); err != nil && (alone == nil || !refused) {
			c.fail(err)
			return
		}
		c.committed(batch, err == nil)
		if alone != nil {
			alone <- err
		}
	}
}

// next takes a batch when it is time for one, else it says how long to wait.
func (c *committer) next() (b *lane.Batch, alone chan error, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		c.urgent = false
		return nil, nil, time.Hour
	}
	age := c.now().Sub(c.since)
	if !c.urgent && len(c.pending) < commitOutcomes && age < commitInterval {
		return nil, nil, commitInterval - age
	}
	b = &lane.Batch{}
	n := 0
	for n < len(c.pending) && alone == nil && (n == 0 || c.pending[n].alone == nil) && b.Add(c.pending[n].change) {
		alone = c.pending[n].alone
		n++
	}
	c.pending = c.pending[n:]
	c.since = c.now()
	return b, alone, 0
}

// committed opens the keys of a batch again, which was written or, where that was allowed,
// refused.
func (c *committer) committed(b *lane.Batch, written bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range b.Changes() {
		c.uncommitted--
		if written {
			c.wrote(ch)
		}
		if ch.Key == "" {
			continue
		}
		if c.closed[ch.Key]--; c.closed[ch.Key] == 0 {
			delete(c.closed, ch.Key)
		}
	}
	close(c.progress)
	c.progress = make(chan struct{})
}

func (c *committer) fail(err error) {
	c.mu.Lock()
	c.err = err
	close(c.progress)
	c.progress = make(chan struct{})
	c.mu.Unlock()
	c.failed(err)
}
