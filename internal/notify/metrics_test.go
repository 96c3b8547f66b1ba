package notify_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/notify"
)

// Alerts compare the counter of each event type and outcome with zero. So each counter must exist
// before the first event.
func TestNewMetrics_BeginWithZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := notify.NewMetrics(registry, func() int { return 0 })
	series := func() (n int) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range families {
			n += len(f.GetMetric())
		}

		return n
	}

	before := series()

	for _, event := range []string{"message.delivered", "message.dead", "message.cancelled",
		"message.superseded",
		notify.LanePaused, notify.LaneResumed, notify.LaneBehind, notify.LaneCaughtUp,
		notify.ReplayFinished} {
		for _, outcome := range notify.Outcomes {
			m.Notified(event, outcome)
		}
	}

	if after := series(); after != before {
		t.Errorf("got %d series at first and %d after each outcome, want %v both times", before,
			after, before)
	}
}
