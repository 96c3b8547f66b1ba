package drain

import (
	"context"
	"slices"
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
	// maxAside bounds the messages that were put aside without an attempt and are not committed.
	// A transaction takes 49 of them: one is being written, and the next one is full.
	maxAside = 128
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
	answer func(error) // not nil: the change releases messages, and may be refused for one of them
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

// release hands over a change that releases messages, which is written at once, with all changes
// before it. answer is called with the result, and must return at once. An error that lane.NotDue
// reports means that the change was not written, and all others were.
func (c *committer) release(ch *lane.Change, answer func(error)) { c.ask(request{ch, answer}, true) }

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
	// One that joins others changes nothing, as long as they may wait for more.
	joins := len(c.pending) > 1 && len(c.pending) < commitOutcomes && !c.urgent
	c.mu.Unlock()
	if !joins {
		c.nudge()
	}
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

// flushDown flushes when n or more changes are uncommitted, and returns a channel that is
// closed at the next commit; nil when fewer are uncommitted, or when committing has ended.
func (c *committer) flushDown(n int) (progress <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.uncommitted < n {
		return nil, c.err
	}
	c.urgent = true
	c.nudge()
	return c.progress, nil
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
		requests, wait := c.next()
		if requests == nil {
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
		if err := c.commit(ctx, requests); err != nil {
			c.fail(err)
			return
		}
	}
}

// next takes the requests of one transaction if it is time for one; else it returns how long to
// wait.
func (c *committer) next() (requests []request, wait time.Duration) {
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
	b, n := &lane.Batch{}, 0
	for n < len(c.pending) && b.TryAdd(c.pending[n].change) {
		n++
	}
	requests, c.pending = c.pending[:n:n], c.pending[n:]
	c.since = c.now()
	return requests, 0
}

// commit writes requests in one transaction. If one releases a message that is no longer
// scheduled, it is refused, and the others are written without it.
func (c *committer) commit(ctx context.Context, requests []request) error {
	for len(requests) > 0 {
		b := &lane.Batch{}
		for _, q := range requests {
			b.TryAdd(q.change)
		}
		err := c.writer.Commit(ctx, b)
		if err == nil {
			c.finish(requests, nil)
			return nil
		}
		due, ok := lane.NoLongerDue(err)
		i := slices.IndexFunc(requests, func(q request) bool { return q.answer != nil && q.change.Releases(due) })
		if !ok || i < 0 {
			return err
		}
		c.finish(requests[i:i+1], err)
		requests = slices.Delete(slices.Clone(requests), i, i+1)
	}
	return nil
}

// finish opens the keys of requests that were written, or refused if err is not nil.
func (c *committer) finish(requests []request, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range requests {
		c.uncommitted--
		if err == nil {
			c.wrote(q.change)
		}
		if q.answer != nil {
			q.answer(err)
		}
		key := q.change.Key
		if key == "" {
			continue
		}
		if c.closed[key]--; c.closed[key] == 0 {
			delete(c.closed, key)
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
