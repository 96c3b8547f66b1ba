// Package clock has a sleep that a context can end, and loads time zones by names that every machine accepts.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends. It returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
