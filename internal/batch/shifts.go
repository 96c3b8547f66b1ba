package batch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxOpen is the number of batches that are in memory at the same time. They belong to
	// different upstreams.
	maxOpen = 4
	// shiftLength is the time after which a batch lets the batches of other upstreams work.
	shiftLength = 2 * time.Second
	// maxStay is the time after which a batch that is being filed leaves its place, if a batch of
	// another upstream waits for one. It later reads its document again from the beginning. A batch
	// that is being checked stays, because its position is not stored; its budget bounds its time.
	maxStay = 2 * time.Minute
)

// shifts shares this process among the batches of different upstreams. Invariants:
//
//   - One batch works at a time. It has the shift, and hands it on after shiftLength, at the next
//     step that ends.
//   - At most maxOpen batches are open, and one of each upstream. The batches of an upstream follow
//     each other.
//
// So a batch waits for one shift of each other open batch, and not for the end of a long batch of
// another upstream.
type shifts struct {
	now   func() time.Time
	open  *semaphore.Weighted // the places of open batches
	right *semaphore.Weighted // the right to work

	waiting atomic.Int64 // batches that wait for a place

	mu         sync.Mutex
	ofUpstream map[string]*semaphore.Weighted // by upstream; "" = not known
}

func newShifts(now func() time.Time) *shifts {
	return &shifts{now: now, open: semaphore.NewWeighted(maxOpen), right: semaphore.NewWeighted(1),
		ofUpstream: map[string]*semaphore.Weighted{}}
}

// shift is the place of one open batch. It is used by one goroutine.
type shift struct {
	*shifts
	own      *semaphore.Weighted // of the batch's upstream
	openedAt time.Time
	beganAt  time.Time // when the batch got the right to work
	hasRight bool
}

// enter waits until the batch of an upstream may be open. The caller must call leave.
func (t *shifts) enter(ctx context.Context, upstream string) (*shift, error) {
	own := t.ownOf(upstream)
	if err := own.Acquire(ctx, 1); err != nil {
		return nil, err
	}

	t.waiting.Add(1)
	err := t.open.Acquire(ctx, 1)
	t.waiting.Add(-1)

	if err != nil {
		own.Release(1)
		return nil, err
	}

	return &shift{shifts: t, own: own, openedAt: t.now()}, nil
}

// ownOf returns the semaphore of an upstream. The names are those of stored batches.
func (t *shifts) ownOf(upstream string) *semaphore.Weighted {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ofUpstream[upstream] == nil {
		t.ofUpstream[upstream] = semaphore.NewWeighted(1)
	}
	return t.ofUpstream[upstream]
}

// begin waits until the batch has the right to work.
func (t *shift) begin(ctx context.Context) error {
	if err := t.right.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	t.hasRight, t.beganAt = true, t.now()
	return nil
}

// pass lets another batch work if shiftLength is over, and waits until it is this batch's shift
// again. It reports whether another batch was waiting.
func (t *shift) pass(ctx context.Context) (hasPassed bool, err error) {
	now := t.now()
	if now.Sub(t.beganAt) < shiftLength {
		return false, nil
	}

	t.end()

	if t.right.TryAcquire(1) { // never succeeds while another batch waits
		t.hasRight, t.beganAt = true, now
		return false, nil
	}

	return true, t.begin(ctx)
}

func (t *shift) end() {
	if t.hasRight {
		t.hasRight = false
		t.right.Release(1)
	}
}

// mustLeave reports whether the batch has to leave its place to a batch that waits for one.
func (t *shift) mustLeave() bool {
	return t.waiting.Load() > 0 && t.now().Sub(t.openedAt) >= maxStay
}

func (t *shift) leave() {
	t.end()
	t.open.Release(1)
	t.own.Release(1)
}
