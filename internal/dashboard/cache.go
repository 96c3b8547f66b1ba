package dashboard

import (
	"context"
	"sync"
	"time"

	"weir/internal/panics"
)

// cache stores loaded values by key. Requests that need the same value at the same time share one
// load. The zero value is ready for use.
type cache[T any] struct {
	mu    sync.Mutex
	calls map[string]*cacheLoad[T]
}

// cacheLoad is a load that is in progress or done.
type cacheLoad[T any] struct {
	done  chan struct{}
	began time.Time
	value T
	err   error
}

// maxCached is the size at which a cache drops finished loads before it adds an entry.
const maxCached = 8

// load returns the value of key. If a load of the value is in progress, the caller waits for this
// load. A finished load is used if it began at most the duration "age" before the time "now".
// Otherwise a new load starts. All parts of a page pass one time as "now", so a page loads each
// value only once, even if age is 0. If a caller stops waiting, the load continues, because other
// callers can wait for the value. An error is not cached.
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

// dropFinished removes finished loads while the cache has maxCached entries or more. The caller has
// locked mu.
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
	c.err = panics.Catch(func() (err error) {
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
