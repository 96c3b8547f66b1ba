package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/internal/retry"
)

// Patience retries calls that fail with Unavailable. It gives up when all calls have failed with
// Unavailable for the time GiveUp. Several goroutines can share a Patience. If a call in any
// goroutine succeeds or fails with another error, the time GiveUp begins again for all goroutines.
type Patience struct {
	GiveUp time.Duration // 0 = each call is tried once
	// first pause; each further pause is twice as long. Each pause is cut by up to half at random.
	First time.Duration
	Most  time.Duration // longest pause, except if Weir's Retry-After is longer
	// Unreached is used instead of GiveUp if no call has got an answer yet, because an address that
	// never answers is probably wrong. If Unreached is 0 or longer than GiveUp, it has no effect.
	Unreached time.Duration
	// Report, if not nil, is called with the first of several Unavailable errors in a row. left is
	// the time for which Do continues to try.
	Report func(err error, left time.Duration)

	mu sync.Mutex
	// worked is the time at which a call last succeeded, or failed with another error than
	// Unavailable. Before the first such call, worked is the time at which the first Do began.
	worked     time.Time
	isAnswered bool // a call got an answer, with any status
	isReported bool // Report was called after the time in worked
}

// Do calls f until f succeeds or fails with another error than Unavailable, and returns the result.
// If the Patience gives up before that, Do returns the last error of f, wrapped. If ctx ends during
// a pause, Do returns an error that wraps the cause of ctx.
func (p *Patience) Do(ctx context.Context, f func(context.Context) error) error {
	p.failingFor(false)
	var idle time.Duration
	hasGivenUp := false
	err := retry.Policy{
		First: p.First, Max: p.Most, Spread: 0.5,
		IsTransient: func(err error) bool { return KindOf(err) == Unavailable },
		BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
			pause, idle = max(pause, retryAfter(err)), p.failingFor(false)
			limit := p.limitFor(err)
			if hasGivenUp = idle+pause > limit; !hasGivenUp {
				p.report(err, limit-idle)
			}
			return pause, !hasGivenUp
		},
	}.Do(ctx, func() error {
		err := f(ctx)
		if err == nil || KindOf(err) != Unavailable {
			p.failingFor(true)
		}
		return err
	})

	if hasGivenUp {
		return fmt.Errorf("given up after %s: %w", idle.Round(time.Second), err)
	}

	return err
}

// failingFor returns the time since p.worked. If works is true or p.worked is zero, failingFor
// first sets p.worked to now.
func (p *Patience) failingFor(works bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if works || p.worked.IsZero() {
		p.worked = now
	}

	if works {
		p.isAnswered, p.isReported = true, false
	}

	return now.Sub(p.worked)
}

// limitFor returns the time for which calls can fail before Do gives up. If err has the status of
// an answer, limitFor records that Weir has answered.
func (p *Patience) limitFor(err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := asError(err); ok && e.Status != 0 {
		p.isAnswered = true
	}

	if p.isAnswered || p.Unreached == 0 {
		return p.GiveUp
	}

	return min(p.Unreached, p.GiveUp)
}

// report calls Report, if this is the first failure after p.worked.
func (p *Patience) report(err error, left time.Duration) {
	p.mu.Lock()
	isFirst := !p.isReported
	p.isReported = true
	p.mu.Unlock()
	if isFirst && p.Report != nil {
		p.Report(err, left)
	}
}

func retryAfter(err error) time.Duration {
	if e, ok := asError(err); ok {
		return e.RetryAfter
	}
	return 0
}
