package drain

import (
	"context"

	"weir/internal/lane"
)

const (
	// preloadMost and preloadBytes bound the bodies that are fetched ahead at a time. A single
	// body may be larger.
	preloadMost  = 4
	preloadBytes = 4 << 20
)

// preload fetches the body of a message that probably comes next, while another is being
// delivered: a large body is a blob of its own, and a message that was read far ahead has none in
// memory.
type preload struct {
	loaded lane.Entry // a copy of the entry, with its body
	done   chan struct{}
	err    error
}

// loadBody fills in an entry's body, or waits until its preload has.
func (r *run) loadBody(ctx context.Context, e *lane.Entry) error {
	p := r.preloads[e]
	if p == nil {
		return r.Store.LoadBody(ctx, e)
	}
	select {
	case <-p.done:
		delete(r.preloads, e)
		e.Message.Body = p.loaded.Message.Body
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// preloadNext starts to fetch the bodies of what comes after c.
func (r *run) preloadNext(ctx context.Context, c *candidate) {
	wanted, bytes := map[*lane.Entry]*preload{}, 0
	for _, e := range r.likelyNext(c) {
		if bytes += e.Message.Size; len(wanted) > 0 && bytes > preloadBytes {
			break
		}
		if wanted[e] = r.preloads[e]; wanted[e] == nil {
			wanted[e] = r.startPreload(ctx, e)
		}
	}
	r.preloads = wanted
}

func (r *run) startPreload(ctx context.Context, e *lane.Entry) *preload {
	p := &preload{loaded: *e, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = r.Store.LoadBody(ctx, &p.loaded)
	}()
	return p
}

// likelyNext guesses which of the next messages need their bodies fetched: the log's first one of
// another, free key, and those that fall due first.
func (r *run) likelyNext(c *candidate) (next []*lane.Entry) {
	if r.careful > 0 {
		return nil
	}
	if e := r.nextOfLog(c); e != nil && e.IsBodyRemote() {
		next = append(next, e)
	}
	return append(next, r.blocks.firstRemote(c.block, preloadMost-len(next))...)
}

func (r *run) nextOfLog(c *candidate) *lane.Entry {
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
