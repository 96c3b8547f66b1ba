package telemetry_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"weir/internal/drain"
	"weir/internal/telemetry"
	"weir/internal/weir"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

type counts struct{}

func (counts) Snapshot() map[string]int64 { return map[string]int64{"table transact": 3} }
func (counts) Failures() map[string]int64 { return map[string]int64{"queue throttled": 2} }

type clock struct{ now time.Time }

func newMetrics() (*telemetry.Metrics, *clock) {
	c := &clock{noon}
	return telemetry.NewMetrics(telemetry.Config{Contracts: []string{"article"}, Storage: counts{},
		Build: telemetry.Build{Version: "v1", Commit: "abc", GoVersion: "go1"},
		Now:   func() time.Time { return c.now }}), c
}

func scrapeText(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}

	return b.String()
}

func checkLines(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	text := scrapeText(t, m)
	for _, want := range lines {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("got\n%s\nwant the line %q", text, want)
		}
	}
}

func TestNewMetrics_KnownSeriesStandAtZero(t *testing.T) {
	t.Parallel()
	m, _ := newMetrics()
	checkLines(t, m,
		`weir_messages_accepted_total{contract="article"} 0`,
		`weir_messages_refused_total{reason="too_large"} 0`,
		`weir_messages_finished_total{contract="article",stage="dead"} 0`,
		`weir_lease_events_total{event="lost"} 0`,
		`weir_storage_transactions_total{operation="transact",service="table"} 3`,
		`weir_storage_failures_total{reason="throttled",service="queue"} 2`,
		`weir_storage_failures_total{reason="refused",service="table"} 0`,
		`weir_build_info{commit="abc",goversion="go1",version="v1"} 1`)
}

func TestMetrics_Filed(t *testing.T) {
	t.Parallel()
	m, _ := newMetrics()
	m.Filed([]weir.Message{{Contract: "article"}, {Contract: "article"}, {Contract: "gone"}})
	checkLines(t, m, `weir_messages_accepted_total{contract="article"} 2`,
		`weir_messages_accepted_total{contract="other"} 1`)
}

func TestMetrics_Refused(t *testing.T) {
	t.Parallel()
	m, _ := newMetrics()
	m.Refused("post", &weir.Error{Kind: weir.Invalid, Contract: "article",
		Problems: []weir.Problem{{Path: "./@path", Rule: "max=200"},
			{Path: "./title", Rule: "required"}}})
	m.Refused("post", errors.New("foreign"))
	m.Refused("post", &weir.Error{Kind: weir.Stale})
	checkLines(t, m, `weir_messages_refused_total{reason="invalid"} 1`,
		`weir_messages_refused_total{reason="internal"} 2`)
}

func TestMetrics_Attempted(t *testing.T) {
	t.Parallel()
	m, _ := newMetrics()
	m.Attempted(0, nil, weir.Result{Status: 503, Duration: 20 * time.Millisecond},
		weir.OutcomeUnavailable)
	m.Attempted(0, nil, weir.Result{Duration: 30 * time.Second}, weir.OutcomeRetry)
	checkLines(t, m,
		`weir_delivery_attempts_total{outcome="unavailable",status_class="5xx"} 1`,
		`weir_delivery_attempts_total{outcome="retry",status_class="none"} 1`,
		`weir_delivery_attempt_duration_seconds_bucket{le="0.01"} 0`,
		`weir_delivery_attempt_duration_seconds_bucket{le="0.025"} 1`,
		`weir_delivery_attempt_duration_seconds_bucket{le="30"} 2`)
}

func TestMetrics_Finished(t *testing.T) {
	t.Parallel()
	m, _ := newMetrics()
	m.Finished(0, drain.Final{Stage: weir.Delivered, Contract: "article", AcceptedAt: noon,
		Since: noon, At: noon.Add(2 * time.Second)})
	m.Finished(0, drain.Final{Stage: weir.Delivered, Contract: "article", AcceptedAt: noon,
		Since: noon.Add(time.Hour), At: noon.Add(time.Hour + 3*time.Millisecond)})
	m.Finished(0, drain.Final{Stage: weir.Dead, Contract: "article", AcceptedAt: noon,
		At: noon.Add(time.Hour)})
	m.Finished(0, drain.Final{Stage: weir.Superseded, At: noon})
	checkLines(t, m,
		`weir_messages_finished_total{contract="article",stage="delivered"} 2`,
		`weir_messages_finished_total{contract="article",stage="dead"} 1`,
		`weir_messages_finished_total{contract="unknown",stage="superseded"} 1`,
		`weir_delivery_lag_seconds_bucket{le="0.005"} 1`,
		`weir_delivery_lag_seconds_count 2`)
}

func TestMetrics_Lease(t *testing.T) {
	t.Parallel()
	m, _ := newMetrics()
	m.Lease(3, drain.LeaseBusy)
	m.Lease(3, drain.LeaseTaken)
	checkLines(t, m, `weir_lease_events_total{event="busy"} 1`,
		`weir_lane_held_by_this_instance{lane="3"} 1`)
	m.Lease(3, drain.LeaseLost)
	checkLines(t, m, `weir_lease_events_total{event="lost"} 1`,
		`weir_lane_held_by_this_instance{lane="3"} 0`)
}

func TestMetrics_Saw(t *testing.T) {
	t.Parallel()
	m, c := newMetrics()
	m.Saw(2, telemetry.LaneView{Waiting: 7, Oldest: noon.Add(-time.Minute),
		Paused: map[string]bool{"cms": true}})
	c.now = noon.Add(30 * time.Second)
	checkLines(t, m, `weir_lane_waiting{lane="2"} 7`, `weir_lane_oldest_age_seconds{lane="2"} 90`,
		`weir_lane_paused{by="cms",lane="2"} 1`, `weir_lane_paused{by="operator",lane="2"} 0`)
	m.Saw(2, telemetry.LaneView{})
	checkLines(t, m, `weir_lane_waiting{lane="2"} 0`, `weir_lane_oldest_age_seconds{lane="2"} 0`,
		`weir_lane_paused{by="cms",lane="2"} 0`)
	c.now = noon.Add(4 * time.Minute)
	if text := scrapeText(t, m); strings.Contains(text, "weir_lane_waiting") {
		t.Errorf("got\n%s\nwant no weir_lane_waiting, because the last view of the lane is four minutes old", text)
	}
}
