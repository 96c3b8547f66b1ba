// Package clock has Sleep, which a context can end, and LoadZone, which accepts the same names of time zones on every
// machine.
package clock

import (
	"context"
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
