package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"weir/internal/retry"
)

// Patience retries calls that fail with Unavailable. It gives up after a time of GiveUp in which every call has failed
// with Unavailable. Several callers may share one Patience: if a call of one caller ends otherwise, the time begins
// again for all callers.
type Patience struct {
	GiveUp time.Duration // 0 = each call is tried once
	First  time.Duration // first pause; each further one is twice as long. Up to half of a pause is cut off at random.
	Most   time.Duration // longest pause, except if Weir's Retry-After is longer
	// Unreached replaces GiveUp until a call gets an answer, because an address that never answers is probably wrong.
	// 0, or a time longer than GiveUp, has no effect.
	Unreached time.Duration
	// Report is called with the first error of each series of errors that are Unavailable. A call that ends otherwise
	// ends the series. left is the time for which Do still tries. Report may be nil.
	Report func(err error, left time.Duration)

	mu sync.Mutex
	// worked is the time of the last call that did not fail with Unavailable. Before such a call it is the time at
	// which the first Do began.
	worked     time.Time
	isAnswered bool // a call had an answer with any status
	isReported bool // Report was called after the time "worked"
}

// Do calls f until f returns nil or an error that is not Unavailable, until Do gives up, or until ctx ends. It returns
// nil, the last error of f (wrapped if Do has given up), or the error of ctx.
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

// failingFor returns the duration since p.worked. If works is true, it first sets p.worked to now.
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

// limitFor returns the time for which calls may fail before Do gives up. If err comes from an answer, limitFor records
// that Weir has answered.
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

// report calls Report, unless Report was called after the time p.worked.
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
