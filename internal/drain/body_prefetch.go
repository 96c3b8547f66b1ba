package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// At most maxPrefetches bodies are prefetched at the same time. Together they have at most maxPrefetchBytes bytes,
	// but the first of them can be larger.
	maxPrefetches    = 4
	maxPrefetchBytes = 4 << 20
)

// bodyPrefetch fetches the bodies of messages that will probably be sent next, while another message is being sent.
type bodyPrefetch struct {
	store   *lane.Store
	running map[*lane.Entry]*bodyFetch
}

type bodyFetch struct {
	loaded lane.Entry    // a copy of the entry, with its body
	done   chan struct{} // closed at the end of the fetch
	err    error
}

// loadBody loads an entry's body. If a prefetch of the body has begun, loadBody waits for its result. After a failed
// prefetch it reads the body itself, because the failure can be old.
func (p *bodyPrefetch) loadBody(ctx context.Context, e *lane.Entry) error {
	f := p.running[e]
	if f == nil {
		return p.store.LoadBody(ctx, e)
	}
	select {
	case <-f.done:
		delete(p.running, e)
		if f.err != nil {
			return p.store.LoadBody(ctx, e)
		}
		e.Message.Body = f.loaded.Message.Body
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prefetchAll begins to fetch the bodies of messages, up to maxPrefetchBytes. The parameter "next" lists the messages;
// the message that will most likely be sent first is its first entry. prefetchAll forgets all earlier fetches of other
// bodies.
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
		f.err = panics.Catch(func() error { return p.store.LoadBody(ctx, &f.loaded) })
	}()
	return f
}
