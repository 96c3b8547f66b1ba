// Package clock has waits that a context can end, the order of two times, and LoadZone, which
// accepts the same names of time zones on every machine.
package clock

import (
	"context"
	"sync"
	"time"
)

// Sleep waits for d, or less if ctx ends. It returns false if ctx has ended, and otherwise true.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// WaitFor waits until all work of a group is done. If ctx ends before, it returns the cause of ctx,
// and the work goes on.
func WaitFor(ctx context.Context, work *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
