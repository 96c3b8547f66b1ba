package upkeep

import (
	"context"
	"log/slog"
	"sync"

	"weir/internal/panics"
)

// passes runs one pass at a time in the background.
type passes struct {
	worker string // name for the log
	run    func(context.Context)
	log    *slog.Logger

	mu        sync.Mutex
	isClosed  bool
	isAwaited bool // true = another pass must begin
	// is closed when no further pass follows; nil = no pass is under way
	done   chan struct{}
	cancel context.CancelFunc // ends the pass under way
}

// begin begins a pass and returns at once. If a pass is under way, exactly one more pass follows,
// however often begin is called meanwhile. After close no pass begins.
func (r *passes) begin() {
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

// next reports whether another pass begins, and updates the state accordingly.
func (r *passes) next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.isClosed || !r.isAwaited {
		r.done = nil
		return false
	}

	r.isAwaited = false

	return true
}

// close ends the pass under way, and prevents further passes. If ctx ends before the pass has
// ended, close returns the error of ctx.
func (r *passes) close(ctx context.Context) error {
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
