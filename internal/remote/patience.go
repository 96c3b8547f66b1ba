package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"weir/internal/clock"
)

// Patience tries again what may work later, until nothing has got through for GiveUp. Many
// may share one: while others get through, nobody gives up.
type Patience struct {
	GiveUp time.Duration
	First  time.Duration // the first wait; each following one is twice as long
	Most   time.Duration // the longest, where Weir does not ask for more

	mu     sync.Mutex
	worked time.Time // when something got through last
}

// Do calls f until it does not fail with Unavailable. Its error is that of the last call,
// or the context's.
func (p *Patience) Do(ctx context.Context, f func(context.Context) error) error {
	p.since(false)
	for wait := p.First; ; wait = min(2*wait, p.Most) {
		err := f(ctx)
		if err == nil || KindOf(err) != Unavailable {
			p.since(true)
			return err
		}
		pause := max(wait/2+rand.N(wait/2+1), retryAfter(err))
		if idle := p.since(false); idle+pause > p.GiveUp {
			return fmt.Errorf("given up after %s: %w", idle.Round(time.Second), err)
		}
		if !clock.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// since gives the time since something got through, or the first call.
func (p *Patience) since(works bool) time.Duration {
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
