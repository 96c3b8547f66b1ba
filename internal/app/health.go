package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/functions/health"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
)

func (r *running) healthChecks() map[string]health.Check {
	return map[string]health.Check{
		"storage": r.checkTable, "lanes": r.checkLaneCount, "queue": r.checkQueue,
		"clock": r.checkClock,
	}
}

func (r *running) checkTable(ctx context.Context) (string, error) {
	if _, err := r.store.ReadControl(ctx, 0); err != nil {
		return "the table cannot be read", err
	}
	return r.describeThrottling(), nil
}

// throttledWindow is the time for which a check shows that storage throttled requests.
const throttledWindow = 10 * time.Minute

// describeThrottling returns a hint if storage has throttled requests of this instance. Weir
// repeats such requests, so the check passes, but all work is slower.
func (r *running) describeThrottling() string {
	n := r.instruments.recorder.RecentlyThrottled(time.Now().Add(-throttledWindow))
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("storage throttled %d requests of this instance within about %d minutes; they were repeated", n,
		int(throttledWindow.Minutes()))
}

func (r *running) checkLaneCount(ctx context.Context) (string, error) {
	meta, err := epochs.Read(ctx, r.store.Table)
	switch {
	case err != nil:
		return "the number of lanes cannot be read", err
	case meta.Open.Number != r.store.Epoch || meta.Step == epochs.StepDrain ||
		meta.Step == epochs.StepCopy:
		r.checkEpoch()
		return "the number of lanes is being changed", lane.ErrClosed
	}

	return "", nil
}

func (r *running) checkQueue(ctx context.Context) (string, error) {
	if _, err := r.account.Tickets().Length(ctx); err != nil {
		return "the queue cannot be read", err
	}
	return "", nil
}

func (r *running) checkClock(ctx context.Context) (string, error) {
	skew, err := r.account.Skew(ctx)
	if err != nil {
		return "storage's clock cannot be read", err
	}

	if skew.Abs() >= lane.ClockSkew {
		return fmt.Sprintf("storage's clock differs by about %s", skew.Round(time.Second)),
			errors.New("clock skew")
	}

	return "", nil
}
