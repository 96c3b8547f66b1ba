package upkeep

import (
	"context"
	"log/slog"
	"sync"

	"weir/internal/panics"
)

// rounds runs one round at a time in the background.
type rounds struct {
	worker string // name for the log
	run    func(context.Context)
	log    *slog.Logger

	mu        sync.Mutex
	isClosed  bool
	isAwaited bool               // true = another round must begin
	done      chan struct{}      // is closed when no further round follows; nil = no round is under way
	cancel    context.CancelFunc // ends the round under way
}

// begin begins a round and returns at once. If a round is under way, exactly one more round follows,
// however often begin is called meanwhile. After close no round begins.
func (r *rounds) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isAwaited = true
	if r.isClosed || r.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.done, r.cancel = done, cancel
	go func() {
		defer close(done)
		defer cancel()
		for r.next() {
			panics.Repeat(ctx, r.log, r.worker, func() { r.run(ctx) })
		}
	}()
}

// next reports whether another round begins, and updates the state accordingly.
func (r *rounds) next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || !r.isAwaited {
		r.done = nil
		return false
	}
	r.isAwaited = false
	return true
}

// close ends the round under way, and prevents further rounds. If ctx ends before the round has
// ended, close returns the error of ctx.
func (r *rounds) close(ctx context.Context) error {
	r.mu.Lock()
	r.isClosed = true
	done, cancel := r.done, r.cancel
	r.mu.Unlock()
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
