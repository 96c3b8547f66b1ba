package stay

import (
	"context"

	"weir/internal/drain"
)

// WithoutHost is the drainer of a process that needs no invocation, because no host ends it. An
// invocation never stays with its lanes, and enqueues no tickets for them: it only starts drains,
// and claims lanes whose holders have no invocation.
type WithoutHost struct{ Drainer }

// Look implements Drainer.
func (d WithoutHost) Look(ctx context.Context, lane int) drain.Report {
	report := d.Drainer.Look(ctx, lane)
	if report.Err == nil && report.State == drain.Working {
		report = drain.Report{State: drain.Idle}
	}
	return report
}

// Join implements Drainer. It does not wait.
func (d WithoutHost) Join(context.Context, int) drain.Report {
	return drain.Report{State: drain.Idle}
}

// Held implements Drainer.
func (d WithoutHost) Held() []int { return nil }
