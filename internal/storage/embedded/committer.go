package embedded

import (
	"context"
	"errors"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/panics"
	"weir/internal/storage"
)

// Bounds of one commit. All its pages are in memory until they are written.
const (
	maxGroupChanges = 256
	maxGroupBytes   = 8 << 20
)

// fullPause is the time after a commit without space in which further writes fail at once. bbolt
// walks over the whole file after such a commit.
const fullPause = 500 * time.Millisecond

var errClosed = errors.New("the store is closed")

// change is a write of one caller.
type change struct {
	op     string
	weight int // bytes, approximately
	// check returns an error if the change is refused. It writes nothing.
	check func(*bolt.Tx) error
	// write makes the change. It can be called again, in another transaction.
	write func(*bolt.Tx) error

	refused error
	done    chan error
}

// committer makes the changes of all callers, in the order of their calls. While one commit is
// written to disk, further changes wait, and the next commit has all of them: group commit.
//
// The refusal of a change can depend on an earlier change of its group. So the caller gets it when
// the group is durable.
type committer struct {
	db       *bolt.DB
	now      func() time.Time
	onBroken func(error)
	afterOne func() // called after each commit

	mu       sync.Mutex
	waiting  []*change
	stopping bool
	broken   error
	more     chan struct{}
	stopped  chan struct{}

	fullUntil time.Time // used by the goroutine of run alone, as is fullErr
	fullErr   error
}

func newCommitter(db *bolt.DB, now func() time.Time, onBroken func(error),
	afterOne func()) *committer {
	if onBroken == nil {
		onBroken = func(error) {}
	}

	c := &committer{db: db, now: now, onBroken: onBroken, afterOne: afterOne,
		more: make(chan struct{}, 1), stopped: make(chan struct{})}
	go c.guardRun()

	return c
}

// do makes a change, and returns when it is durable. If ctx ends before the change is part of a
// group, nothing is done; later, the result is unknown.
func (c *committer) do(ctx context.Context, ch *change) error {
	if ctx.Err() != nil {
		return endedError(ctx, ch.op)
	}

	ch.done = make(chan error, 1)
	if err := c.enqueue(ch); err != nil {
		return notDone(ch.op, err)
	}

	select {
	case err := <-ch.done:
		return err
	case <-ctx.Done():
	}

	if c.withdraw(ch) {
		return endedError(ctx, ch.op)
	}

	return newError(ch.op, storage.Ambiguous, context.Cause(ctx))
}

func (c *committer) enqueue(ch *change) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch {
	case c.broken != nil:
		return c.broken
	case c.stopping:
		return errClosed
	}

	c.waiting = append(c.waiting, ch)
	c.wake()

	return nil
}

// wake lets run look for changes. The caller has locked mu.
func (c *committer) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// withdraw removes a change that still waits, and reports whether it did.
func (c *committer) withdraw(ch *change) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i, other := range c.waiting {
		if other == ch {
			c.waiting = append(c.waiting[:i:i], c.waiting[i+1:]...)
			return true
		}
	}

	return false
}

// stop returns when all changes that wait are done, and refuses further ones.
func (c *committer) stop() {
	c.mu.Lock()
	c.stopping = true
	c.wake()
	c.mu.Unlock()

	<-c.stopped
}

func (c *committer) run() {
	defer close(c.stopped)
	for range c.more {
		for group := c.takeGroup(); len(group) > 0; group = c.takeGroup() {
			c.commitGroup(group)
			c.afterOne()
		}

		if c.isDone() {
			return
		}
	}
}

func (c *committer) isDone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.stopping && len(c.waiting) == 0
}

// takeGroup takes the changes of the next commit.
func (c *committer) takeGroup() []*change {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, bytes := 0, 0
	for n < len(c.waiting) && n < maxGroupChanges &&
		(n == 0 || bytes+c.waiting[n].weight <= maxGroupBytes) {
		bytes += c.waiting[n].weight
		n++
	}

	group := c.waiting[:n:n]
	c.waiting = c.waiting[n:]

	return group
}

// commitGroup makes the changes of a group. A change whose write fails is left out, and all others
// are made anew without it.
func (c *committer) commitGroup(group []*change) {
	for len(group) > 0 {
		failed, err := c.tryGroup(group)
		if failed < 0 {
			answerGroup(group, err)
			return
		}

		group[failed].done <- notDone(group[failed].op, err)
		group = append(group[:failed:failed], group[failed+1:]...)
	}
}

// answerGroup returns the result of a commit to the callers.
func answerGroup(group []*change, err error) {
	for _, ch := range group {
		answer := ch.refused
		if err != nil {
			e := *storageError(err)
			e.Op, answer = ch.op, &e
		}
		ch.done <- answer
	}
}

func storageError(err error) *storage.Error {
	var e *storage.Error
	if errors.As(err, &e) {
		return e
	}

	return newError("", storage.Unavailable, err)
}

// tryGroup commits a group. If the write of a change fails, nothing is done, and failed is the
// change's index; otherwise failed is -1, and err the error of the whole commit.
func (c *committer) tryGroup(group []*change) (failed int, err error) {
	if err := c.refusal(); err != nil {
		return -1, notDone("", err)
	}

	tx, err := c.db.Begin(true)
	if err != nil {
		return -1, notDone("", err)
	}

	wrote := false
	for i, ch := range group {
		err := guardFaults(func() error {
			if ch.refused = ch.check(tx); ch.refused != nil {
				return nil
			}
			wrote = true
			return ch.write(tx)
		})
		if err != nil {
			return i, errors.Join(err, rollback(tx))
		}
	}

	if !wrote {
		return -1, rollback(tx)
	}

	return -1, c.commit(tx)
}

func rollback(tx *bolt.Tx) error { return guardFaults(tx.Rollback) }

// refusal returns the error of each write at this time, or nil.
func (c *committer) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken == nil && c.now().Before(c.fullUntil) {
		return c.fullErr
	}

	return c.broken
}

// commit makes a transaction durable. After an error, the transaction is done or not. It is
// certainly not done if the present state is still the one before. Otherwise only the disk knows,
// and the file must be opened anew.
func (c *committer) commit(tx *bolt.Tx) error {
	id := tx.ID()
	err := guardFaults(tx.Commit)
	if err == nil {
		return nil
	}

	if before, known := c.stateID(); known && before < id {
		if isFull(err) {
			c.fullUntil, c.fullErr = c.now().Add(fullPause), err
		}
		return notDone("", err)
	}

	c.breakDown(err)

	return newError("", storage.Ambiguous, err)
}

// stateID returns the number of the present state: the id of the transaction that made it.
func (c *committer) stateID() (id int, known bool) {
	err := guardFaults(func() error {
		return c.db.View(func(tx *bolt.Tx) error {
			id = tx.ID()
			return nil
		})
	})

	return id, err == nil
}

// breakDown refuses all further changes.
func (c *committer) breakDown(err error) {
	c.mu.Lock()
	c.broken = errors.Join(errors.New("the disk failed, and the process must be started again"),
		err)
	broken := c.broken
	c.mu.Unlock()

	c.onBroken(broken)
}

// guardRun is run with a guard: a panic breaks the store, so that no caller waits for ever.
func (c *committer) guardRun() {
	err := panics.Catch(func() error {
		c.run()
		return nil
	})
	if err != nil {
		c.breakDown(err)
	}
}
