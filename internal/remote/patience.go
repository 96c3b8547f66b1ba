package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weir/internal/clock"
)

// Patience retries calls that fail with Unavailable, until no call has succeeded for GiveUp. Several
// callers may share one: a success of one keeps all of them trying.
type Patience struct {
	GiveUp time.Duration
	First  time.Duration // the first wait; each following one is twice as long
	Most   time.Duration // the longest wait, unless Weir asks for a longer one

	mu     sync.Mutex
	worked time.Time // time of the last success
}

// Do calls f until it does not fail with Unavailable. It returns the error of the last call, or of the
// context.
func (p *Patience) Do(ctx context.Context, f func(context.Context) error) error {
	p.failingFor(false)
	for wait := p.First; ; wait = min(2*wait, p.Most) {
		err := f(ctx)
		if err == nil || KindOf(err) != Unavailable {
			p.failingFor(true)
			return err
		}
		pause := max(wait/2+rand.N(wait/2+1), retryAfter(err))
		if idle := p.failingFor(false); idle+pause > p.GiveUp {
			return fmt.Errorf("given up after %s: %w", idle.Round(time.Second), err)
		}
		if !clock.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// failingFor returns the time since the last success or the first call.
func (p *Patience) failingFor(works bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if works || p.worked.IsZero() {
		p.worked = now
	}
	return now.Sub(p.worked)
}

func retryAfter(err error) time.Duration {
	if e, ok := asError(err); ok {
		return e.RetryAfter
	}
	return 0
}
