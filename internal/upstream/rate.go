package upstream

import (
	"fmt"
	"sync"
	"time"
)

// Rate is a number of messages in a time. The zero Rate is no limit.
type Rate struct {
	Count int
	Per   time.Duration // a second or a minute
}

func (r Rate) String() string {
	if r.Per == time.Minute {
		return fmt.Sprintf("%d messages a minute", r.Count)
	}
	return fmt.Sprintf("%d messages a second", r.Count)
}

// bucket is a token bucket. It is full at first, holds as many tokens as the rate's number, and gets as many new ones
// in the rate's time. It is safe for concurrent use.
type bucket struct {
	interval time.Duration // between two tokens
	size     time.Duration // the time in which an empty bucket becomes full

	mu     sync.Mutex
	fullAt time.Time // when the bucket would be full without further takes
}

func newBucket(r Rate) *bucket {
	interval := r.Per / time.Duration(r.Count)
	return &bucket{interval: interval, size: interval * time.Duration(r.Count)}
}

// takeToken takes a token, and returns 0. If the bucket is empty, it returns the time until the next token.
func (b *bucket) takeToken(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	fullAt := b.fullAt
	if fullAt.Before(now) {
		fullAt = now
	}
	if wait := fullAt.Add(b.interval).Sub(now) - b.size; wait > 0 {
		return wait
	}
	b.fullAt = fullAt.Add(b.interval)
	return 0
}
