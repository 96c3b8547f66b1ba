package drain

import (
	"context"

	"weir/internal/lane"
)

// preload fetches the body of the message that is likely to be next while another is being
// delivered: a large body is a blob of its own, and what was read far ahead has none.
type preload struct {
	entry *lane.Entry
	done  chan struct{}
	err   error
}

// loadBody fills in an entry's body, or waits until the preload has.
func (r *run) loadBody(ctx context.Context, e *lane.Entry) error {
	p := r.preload
	if p == nil || p.entry != e {
		return r.Store.LoadBody(ctx, e)
	}
	select {
	case <-p.done:
		r.preload = nil
		if p.err != nil {
			return p.err
		}
		return r.Store.LoadBody(ctx, e) // it is there
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// preloadNext starts to fetch the body of what comes after c. One at a time.
func (r *run) preloadNext(ctx context.Context, c *candidate) {
	if p := r.preload; p != nil {
		select {
		case <-p.done:
		default:
			return
		}
	}
	next := r.likelyNext(c)
	if next == nil || r.careful > 0 || !next.Remote() {
		return
	}
	p := &preload{entry: next, done: make(chan struct{})}
	r.preload = p
	go func() {
		defer close(p.done)
		p.err = r.Store.LoadBody(ctx, next)
	}()
}

// likelyNext guesses what is chosen next: the log's first of another key that is free.
func (r *run) likelyNext(c *candidate) *lane.Entry {
	for i, e := range r.window.entries {
		key := e.KeyHash()
		if key == c.entry.KeyHash() || r.blocks[key] != nil || r.keyPaused(key, r.Now()) || r.gate.avoid[key] || r.committer.isClosed(key) {
			continue
		}
		if e.Message.Supersede {
			return r.newestOf(i)
		}
		return e
	}
	return nil
}
