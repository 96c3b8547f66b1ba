package drain

import (
	"context"
	"slices"

	"golang.org/x/sync/semaphore"

	"weir/internal/lane"
	"weir/internal/panics"
)

const (
	// At most maxPrefetches bodies are prefetched at the same time. Together they have at most maxPrefetchBytes bytes,
	// but the first of them can be larger.
	maxPrefetches    = 4
	maxPrefetchBytes = 4 << 20
	// maxPrefetchTotal bounds the bytes of all prefetched bodies of a process. A process can hold a thousand lanes.
	maxPrefetchTotal = 32 << 20
)

// bodyPrefetch fetches the bodies of messages that will probably be sent next, while another message is being sent.
type bodyPrefetch struct {
	store   *lane.Store
	room    *semaphore.Weighted // maxPrefetchTotal bytes, which all lanes of the process share
	running map[*lane.Entry]*bodyFetch
}

type bodyFetch struct {
	loaded lane.Entry    // a copy of the entry, with its body
	weight int64         // bytes of the room that the fetch has
	done   chan struct{} // closed at the end of the fetch
	err    error
}

// newPrefetchRoom returns the room for the prefetched bodies of a process.
func newPrefetchRoom() *semaphore.Weighted { return semaphore.NewWeighted(maxPrefetchTotal) }

// loadBody loads an entry's body. If a prefetch of the body has begun, loadBody waits for its result. After a failed
// prefetch it reads the body itself, because the failure can be old.
func (p *bodyPrefetch) loadBody(ctx context.Context, e *lane.Entry) error {
	f := p.running[e]
	if f == nil {
		return p.store.LoadBody(ctx, e)
	}
	select {
	case <-f.done:
		p.forget(e, f)
		if f.err != nil {
			return p.store.LoadBody(ctx, e)
		}
		e.Message.Body = f.loaded.Message.Body
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prefetchAll begins to fetch the bodies of messages, up to maxPrefetchBytes, and as long as the process has room. The
// parameter "next" lists the messages; the message that will most likely be sent first is its first entry. prefetchAll
// forgets all earlier fetches of other bodies.
func (p *bodyPrefetch) prefetchAll(ctx context.Context, next []*lane.Entry) {
	bytes := 0
	for i, e := range next {
		if bytes += e.Message.Size; i > 0 && bytes > maxPrefetchBytes {
			next = next[:i]
			break
		}
	}
	for e, f := range p.running {
		if !slices.Contains(next, e) {
			p.forget(e, f)
		}
	}

	for _, e := range next {
		if p.running[e] != nil {
			continue
		}
		weight := min(int64(e.Message.Size), maxPrefetchTotal)
		if !p.room.TryAcquire(weight) {
			return
		}
		p.startFetch(ctx, e, weight)
	}
}

// forget frees the room of a fetch.
func (p *bodyPrefetch) forget(e *lane.Entry, f *bodyFetch) {
	delete(p.running, e)
	p.room.Release(f.weight)
}

// forgetAll is called at the end of a session.
func (p *bodyPrefetch) forgetAll() {
	for e, f := range p.running {
		p.forget(e, f)
	}
}

func (p *bodyPrefetch) startFetch(ctx context.Context, e *lane.Entry, weight int64) {
	f := &bodyFetch{loaded: *e, weight: weight, done: make(chan struct{})}
	if p.running == nil {
		p.running = map[*lane.Entry]*bodyFetch{}
	}
	p.running[e] = f
	go func() {
		defer close(f.done)
		f.err = panics.Catch(func() error { return p.store.LoadBody(ctx, &f.loaded) })
	}()
}
