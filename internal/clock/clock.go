// Package clock waits.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends, whichever is first. It says whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
