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
	failed func(error) // called once, when nothing more can be committed

	mu          sync.Mutex
	pending     []*lane.Change
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

// startCommitter begins to commit; ctx ends it hard, close ends it in order.
func startCommitter(ctx context.Context, w *lane.Writer, now func() time.Time, failed func(error)) *committer {
	c := &committer{
		writer: w, now: now, failed: failed, closed: map[string]int{}, progress: make(chan struct{}),
		kick: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	go c.loop(ctx)
	return c
}

// add hands over a change. An urgent one is committed at once, with all before it.
func (c *committer) add(ch *lane.Change, urgent bool) {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.since = c.now()
	}
	c.pending = append(c.pending, ch)
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
		batch, wait := c.next()
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
		if err := c.writer.Commit(ctx, batch); err != nil {
			c.fail(err)
			return
		}
		c.committed(batch)
	}
}

// next takes a batch when it is time for one, else it says how long to wait.
func (c *committer) next() (*lane.Batch, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		c.urgent = false
		return nil, time.Hour
	}
	age := c.now().Sub(c.since)
	if !c.urgent && len(c.pending) < commitOutcomes && age < commitInterval {
		return nil, commitInterval - age
	}
	b := &lane.Batch{}
	n := 0
	for n < len(c.pending) && b.Add(c.pending[n]) {
		n++
	}
	c.pending = c.pending[n:]
	c.since = c.now()
	return b, 0
}

func (c *committer) committed(b *lane.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range b.Changes() {
		c.uncommitted--
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
