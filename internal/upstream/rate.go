package upstream

import (
	"fmt"
	"sync"
	"time"
)

// Rate is a number of messages in a period. The zero Rate means no limit.
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

// bucket is the token bucket of a Rate. It is full at first. It holds at most Count tokens, and
// gets Count new tokens in each Per. It is safe for concurrent use.
type bucket struct {
	interval time.Duration // time between two tokens
	size     time.Duration // time in which an empty bucket becomes full

	mu     sync.Mutex
	fullAt time.Time // time at which the bucket is full if no token is taken until then
}

func newBucket(r Rate) *bucket {
	interval := r.Per / time.Duration(r.Count)
	return &bucket{interval: interval, size: interval * time.Duration(r.Count)}
}

// takeToken takes a token and returns 0. If the bucket is empty, takeToken returns the time until
// the next token.
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
