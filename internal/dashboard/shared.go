package dashboard

import (
	"context"
	"sync"
	"time"
)

// shared is something that is read once for all who look at the same time. The zero value
// is ready.
type shared[T any] struct {
	mu    sync.Mutex
	calls map[string]*call[T]
}

// call is one reading, under way or done.
type call[T any] struct {
	done  chan struct{}
	began time.Time
	value T
	err   error
}

// maxShared is how many different things are kept of a kind.
const maxShared = 8

// get gives what was read no longer ago than age, or reads it. One page has one now, so what
// it reads twice is read once. A reader that gives up leaves the reading to the others; one
// that failed is not kept.
func (s *shared[T]) get(ctx context.Context, key string, now time.Time, age time.Duration, read func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	c := s.calls[key]
	if c == nil || c.over() && (c.err != nil || now.Sub(c.began) > age) {
		c = &call[T]{done: make(chan struct{}), began: now}
		if s.calls == nil {
			s.calls = map[string]*call[T]{}
		}
		s.forget()
		s.calls[key] = c
		go c.run(context.WithoutCancel(ctx), read)
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

// forget makes room; the caller holds the lock.
func (s *shared[T]) forget() {
	for key, c := range s.calls {
		if len(s.calls) >= maxShared && c.over() {
			delete(s.calls, key)
		}
	}
}

func (c *call[T]) run(ctx context.Context, read func(context.Context) (T, error)) {
	defer close(c.done)
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	c.err = safely(func() (err error) {
		c.value, err = read(ctx)
		return err
	})
}

func (c *call[T]) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
