package dashboard

import (
	"context"
	"sync"
	"time"
)

// cache shares one load between all pages that need the same data. The zero value is ready.
type cache[T any] struct {
	mu    sync.Mutex
	calls map[string]*cacheLoad[T]
}

// cacheLoad is one load, in progress or done.
type cacheLoad[T any] struct {
	done  chan struct{}
	began time.Time
	value T
	err   error
}

// If a cache has maxCached entries or more, it drops finished loads before it adds a new one.
const maxCached = 8

// load returns a cached value that is not older than age, or loads the value. All parts of a page have the same time
// "now", so the page loads each value once. If a caller stops waiting, the load continues for the other callers. A
// failed load is not cached.
func (s *cache[T]) load(ctx context.Context, key string, now time.Time, age time.Duration,
	read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	c := s.calls[key]
	if c == nil || c.isDone() && (c.err != nil || now.Sub(c.began) > age) {
		c = &cacheLoad[T]{done: make(chan struct{}), began: now}
		if s.calls == nil {
			s.calls = map[string]*cacheLoad[T]{}
		}
		s.dropFinished()
		s.calls[key] = c
		go c.runLoad(context.WithoutCancel(ctx), read)
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// dropFinished removes finished loads while the cache is full. The caller has locked mu.
func (s *cache[T]) dropFinished() {
	for key, c := range s.calls {
		if len(s.calls) >= maxCached && c.isDone() {
			delete(s.calls, key)
		}
	}
}

func (c *cacheLoad[T]) runLoad(ctx context.Context, read func(context.Context) (T, error)) {
	defer close(c.done)
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	c.err = recoverPanic(func() (err error) {
		c.value, err = read(ctx)
		return err
	})
}

func (c *cacheLoad[T]) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
