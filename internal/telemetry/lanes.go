package telemetry

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/drain"
)

// LaneView is the observed state of a lane.
type LaneView struct {
	Waiting int64 // number of messages that are not final
	// when the oldest waiting message could first be sent; zero = none waits, or not known
	Oldest time.Time
	Paused map[string]bool // whether the lane is paused, by cause: operator, calendar, cms
	// Missing has the number of messages that wait for a contract that the settings lack, by the
	// contract's name.
	Missing map[string]int64
	// Braked has the number of messages that wait because the CMS rejects others of their contract
	// in the same way, by the contract's name.
	Braked map[string]int64
	// RefusedKeys is the number of keys that the CMS refuses, at least.
	RefusedKeys int64
}

// stale is the age above which the view of a lane is not shown. Without this limit, an instance
// that can no longer read a lane would show the lane's last view for ever.
const stale = 150 * time.Second

// pausers are the keys of LaneView.Paused.
var pausers = []string{"operator", "calendar", "cms"}

// lanes is a Prometheus collector. It shows this instance's last view of each lane, and the lanes
// whose lease this process has. Every instance shows every lane, so a dashboard must take the
// largest value of a lane.
type lanes struct {
	now func() time.Time

	mu      sync.Mutex
	seen    map[int]look
	isOwned map[int]bool // by lane: whether this process has the lease; no entry = false
}

// look is a view of a lane, with the time at which Saw stored the view.
type look struct {
	LaneView
	at time.Time
}

func newLanes(now func() time.Time) *lanes {
	return &lanes{now: now, seen: map[int]look{}, isOwned: map[int]bool{}}
}

// Saw stores the view of a lane, in place of any earlier view.
func (m *Metrics) Saw(lane int, v LaneView) {
	m.lanes.mu.Lock()
	defer m.lanes.mu.Unlock()
	m.lanes.seen[lane] = look{v, m.lanes.now()}
}

func (l *lanes) observeLease(lane int, event drain.LeaseEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOwned[lane] = event == drain.LeaseTaken
}

func laneDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_lane_"+name, help, append([]string{"lane"}, labels...), nil)
}

var (
	waitingDesc = laneDesc("waiting",
		"Messages of the lane that are not final, as this instance last read them.")
	oldestDesc = laneDesc("oldest_age_seconds",
		"For how long the lane's oldest message could have been delivered; 0 when none waits.")
	pausedDesc  = laneDesc("paused", "1 while the lane is paused, by the cause of the pause.", "by")
	missingDesc = laneDesc("missing_contract_messages",
		"Messages of the lane that wait because the settings lack their contract.", "contract")
	brakedDesc = laneDesc("braked_messages",
		"Messages of the lane that wait because the CMS rejects many of their contract alike.",
		"contract")
	refusedDesc = laneDesc("refused_keys",
		"Keys whose messages the CMS refuses, while it may take others.")
	heldDesc = laneDesc("held_by_this_instance", "1 while this instance drains the lane.")
)

// Describe implements prometheus.Collector.
func (l *lanes) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitingDesc, oldestDesc, pausedDesc, missingDesc,
		brakedDesc, refusedDesc, heldDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (l *lanes) Collect(out chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	now := l.now()
	for number, seen := range l.seen {
		if now.Sub(seen.at) > stale {
			continue
		}

		name := strconv.Itoa(number)
		gauge(waitingDesc, float64(seen.Waiting), name)
		gauge(refusedDesc, float64(seen.RefusedKeys), name)
		gauge(oldestDesc, ageSeconds(seen.Oldest, now), name)
		for _, by := range pausers {
			gauge(pausedDesc, boolValue(seen.Paused[by]), name, by)
		}

		for contract, messages := range seen.Missing {
			gauge(missingDesc, float64(messages), name, contract)
		}

		for contract, messages := range seen.Braked {
			gauge(brakedDesc, float64(messages), name, contract)
		}
	}

	for number, isOwned := range l.isOwned {
		gauge(heldDesc, boolValue(isOwned), strconv.Itoa(number))
	}
}

func ageSeconds(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
