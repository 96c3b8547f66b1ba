package drain

import (
	"context"

	"weir/internal/lane"
)

const (
	// maxPrefetches and maxPrefetchBytes bound the bodies that are being fetched ahead at one time. The first body may
	// be larger than maxPrefetchBytes.
	maxPrefetches    = 4
	maxPrefetchBytes = 4 << 20
)

// bodyPrefetch fetches the bodies of the messages that probably come next, while another message is sent. A large body
// is in a blob of its own, and the body of a message that was read far ahead is not in memory.
type bodyPrefetch struct {
	store   *lane.Store
	running map[*lane.Entry]*bodyFetch
}

// bodyFetch is the fetch of one body.
type bodyFetch struct {
	loaded lane.Entry    // a copy of the entry, with its body
	done   chan struct{} // closed at the end of the fetch
	err    error
}

// loadBody loads an entry's body. If the body is being prefetched, loadBody waits for that.
func (p *bodyPrefetch) loadBody(ctx context.Context, e *lane.Entry) error {
	f := p.running[e]
	if f == nil {
		return p.store.LoadBody(ctx, e)
	}
	select {
	case <-f.done:
		delete(p.running, e)
		e.Message.Body = f.loaded.Message.Body
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prefetchAll begins to fetch the bodies of messages, the most likely next one first. It forgets the fetches of all
// other messages.
func (p *bodyPrefetch) prefetchAll(ctx context.Context, next []*lane.Entry) {
	wanted, bytes := map[*lane.Entry]*bodyFetch{}, 0
	for _, e := range next {
		if bytes += e.Message.Size; len(wanted) > 0 && bytes > maxPrefetchBytes {
			break
		}
		if wanted[e] = p.running[e]; wanted[e] == nil {
			wanted[e] = p.startFetch(ctx, e)
		}
	}
	p.running = wanted
}

func (p *bodyPrefetch) startFetch(ctx context.Context, e *lane.Entry) *bodyFetch {
	f := &bodyFetch{loaded: *e, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.err = p.store.LoadBody(ctx, &f.loaded)
	}()
	return f
}
