package telemetry

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"weir/internal/drain"
	"weir/internal/weir"
)

// Metrics has the metrics of this process. It is safe for concurrent use.
type Metrics struct {
	// Registry has all metrics of the process. Other packages can register collectors of their own.
	Registry *prometheus.Registry

	accepted *prometheus.CounterVec
	refused  *prometheus.CounterVec
	broken   *prometheus.CounterVec // refused submissions, by way in, contract and rule
	poisoned prometheus.Counter
	finished *prometheus.CounterVec
	attempts *prometheus.CounterVec
	duration prometheus.Histogram
	lag      prometheus.Histogram
	leases   *prometheus.CounterVec
	removed  *prometheus.CounterVec
	damaged  prometheus.Counter

	sent *prometheus.CounterVec // appended messages, by upstream
	// messages and batches that a limit refused, by upstream and by limit
	limited *prometheus.CounterVec

	contracts map[string]bool // the names of the contracts in the settings
	lanes     *lanes
}

var _ drain.Observer = (*Metrics)(nil)

// Build describes the binary.
type Build struct{ Version, Commit, GoVersion string }

// Config has the sources of Metrics. Storage and Upstreams are optional; all other fields are
// required.
type Config struct {
	Contracts []string // the names of the contracts in the settings
	Upstreams []string // the names of the upstreams in the settings; nil = no metrics of upstreams
	Storage   Counts   // nil = no metrics of storage
	Build     Build
	Now       func() time.Time
}

var (
	// durationBuckets are for the time of one attempt, in seconds. The lowest bucket is for a CMS
	// on the same machine, the highest for a long timeout.
	durationBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// lagBuckets reach up to a day, because messages wait while the CMS is unavailable.
	lagBuckets = append(durationBuckets[:len(durationBuckets):len(durationBuckets)], 300, 900, 3600,
		14400, 86400)
)

const (
	otherContract   = "other"   // the settings do not have the message's contract
	unknownContract = "unknown" // the message was superseded, and the holder had not read it
)

// NewMetrics returns metrics in a new registry, because libraries add metrics to Prometheus's
// default registry. The counters of messages, refusals, leases and retention start at zero for each
// known label value. Otherwise the first event would not be visible as an increase.
func NewMetrics(cfg Config) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(), contracts: map[string]bool{}, lanes: newLanes(cfg.Now),
		accepted: newCounter("messages_accepted_total",
			"Messages filed, recurring ones included, repeats not.", "contract"),
		refused: newCounter("messages_refused_total",
			"Refused posts, files, parts of batches and messages of a broker, by kind of error.",
			"reason"),
		broken: newCounter("messages_refused_by_rule_total",
			"Refused posts, files, parts of batches and messages of a broker, by the first rule that they break.",
			"way", "contract", "rule"),
		poisoned: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "weir",
			Name: "tickets_poisoned_total",
			Help: "Tickets that the host gave up, and moved to the poison queue."}),
		finished: newCounter("messages_finished_total",
			"Messages that became final, by their last stage.", "stage", "contract"),
		attempts: newCounter("delivery_attempts_total",
			"Attempts, by what they mean to the message and the class of the CMS's status.",
			"outcome", "status_class"),
		leases: newCounter("lease_events_total",
			"Events of the leases of lanes, by kind.", "event"),
		removed: newCounter("retention_removals_total",
			"Messages that retention removed; messages and bodies that storage refused to remove.",
			"outcome"),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "weir",
			Name: "damaged_rows_total",
			Help: "Rows of lanes and outboxes that this process cannot read and passes over; each counts once."}),
		duration: newHistogram("delivery_attempt_duration_seconds", "Time of one attempt.",
			durationBuckets),
		lag: newHistogram("delivery_lag_seconds",
			"Time from acceptance, or the due moment, to delivery.", lagBuckets),
		sent: newCounter("upstream_messages_accepted_total",
			"Messages filed, by the upstream that sent them.", "upstream"),
		limited: newCounter("upstream_messages_limited_total",
			"Messages that a limit of their upstream refused.", "upstream", "limit"),
	}

	for _, name := range cfg.Contracts {
		m.contracts[name] = true
	}

	m.initSeries()
	m.initUpstreams(cfg.Upstreams)
	m.Registry.MustRegister(m.accepted, m.refused, m.broken, m.poisoned, m.finished, m.attempts,
		m.duration, m.lag, m.leases, m.removed, m.damaged,
		m.lanes, buildInfo(cfg.Build),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	if cfg.Storage != nil {
		m.Registry.MustRegister(storageCollector{cfg.Storage})
	}

	return m
}

func (m *Metrics) initSeries() {
	for name := range m.contracts {
		m.accepted.WithLabelValues(name)
		for _, stage := range []weir.Stage{weir.Delivered, weir.Dead, weir.Cancelled,
			weir.Superseded, weir.Discarded} {
			m.finished.WithLabelValues(string(stage), name)
		}
	}

	for kind, reason := range reasons {
		if !slices.Contains(upstreamKinds, kind) {
			m.refused.WithLabelValues(reason)
		}
	}

	m.Removed(0, 0)

	for _, event := range []drain.LeaseEvent{drain.LeaseTaken, drain.LeaseBusy, drain.LeaseReleased,
		drain.LeaseLost} {
		m.leases.WithLabelValues(string(event))
	}
}

func (m *Metrics) initUpstreams(names []string) {
	if len(names) == 0 {
		return
	}

	m.Registry.MustRegister(m.sent, m.limited)
	for _, kind := range upstreamKinds {
		m.refused.WithLabelValues(reasons[kind])
	}

	for _, name := range names {
		m.sent.WithLabelValues(name)
		for _, limit := range []string{"rate", "dailyQuota"} {
			m.limited.WithLabelValues(name, limit)
		}
	}
}

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "weir", Name: name,
		Help: help}, labels)
}

func newHistogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "weir", Name: name,
		Help: help, Buckets: buckets})
}

func buildInfo(b Build) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "weir", Name: "build_info",
		Help: "What runs; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit,
			"goversion": b.GoVersion}},
		func() float64 { return 1 })
}

// Filed counts messages that were appended to a lane.
func (m *Metrics) Filed(messages []weir.Message) {
	for i := range messages {
		m.accepted.WithLabelValues(m.contractLabel(messages[i].Contract)).Inc()
		if name := messages[i].Upstream; name != "" {
			m.sent.WithLabelValues(name).Inc()
		}
	}
}

// Limited implements upstream.Observer.
func (m *Metrics) Limited(upstream, limit string) {
	m.limited.WithLabelValues(upstream, limit).Inc()
}

// Refused counts a refusal, by the kind of err. A refusal is a post that is answered with an error.
// An invalid file, an invalid part of a batch and an invalid message of a broker are refusals, too.
// If err names a rule, Refused also counts the refusal by its way in, contract and rule.
func (m *Metrics) Refused(way string, err error) {
	m.refused.WithLabelValues(RefusalReason(err)).Inc()
	if rule := weir.FirstRule(err); rule != "" {
		m.broken.WithLabelValues(way, cmp.Or(weir.ContractOf(err), "none"), rule).Inc()
	}
}

// Poisoned counts a ticket that the host gave up.
func (m *Metrics) Poisoned() { m.poisoned.Inc() }

// Attempted implements drain.Observer.
func (m *Metrics) Attempted(_ int, _ *weir.Message, r weir.Result, outcome weir.Outcome) {
	m.attempts.WithLabelValues(string(outcome), statusClass(r.Status)).Inc()
	m.duration.Observe(r.Duration.Seconds())
}

// Finished implements drain.Observer.
func (m *Metrics) Finished(_ int, f drain.Final) {
	m.finished.WithLabelValues(string(f.Stage), m.contractLabel(f.Contract)).Inc()
	if f.Stage == weir.Delivered {
		m.lag.Observe(f.At.Sub(f.Since).Seconds())
	}
}

// Removed counts the messages that retention removed, and the messages and bodies that storage
// refused to remove.
func (m *Metrics) Removed(removed, refused int) {
	m.removed.WithLabelValues("removed").Add(float64(removed))
	m.removed.WithLabelValues("refused").Add(float64(refused))
}

// FoundDamaged counts a row that cannot be read.
func (m *Metrics) FoundDamaged() { m.damaged.Inc() }

// Lease implements drain.Observer.
func (m *Metrics) Lease(lane int, event drain.LeaseEvent) {
	m.leases.WithLabelValues(string(event)).Inc()
	m.lanes.observeLease(lane, event)
}

func (m *Metrics) contractLabel(name string) string {
	switch {
	case m.contracts[name]:
		return name
	case name == "":
		return unknownContract
	}
	return otherContract
}

// statusClass returns the class of a status, such as "2xx", or "none" if there was no answer.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// reasons are the label values of refusals, by kind of error.
var reasons = map[weir.Kind]string{
	weir.Malformed: "malformed", weir.TooLarge: "too_large", weir.Unsupported: "unsupported",
	weir.Invalid:  "invalid",
	weir.Conflict: "conflict", weir.Unavailable: "unavailable", weir.Internal: "internal",
	weir.Unauthenticated: "unauthenticated", weir.Forbidden: "forbidden", weir.Limited: "limited",
}

// upstreamKinds are the kinds of refusals that can occur only if the settings have upstreams.
var upstreamKinds = []weir.Kind{weir.Unauthenticated, weir.Forbidden, weir.Limited}

// RefusalReason returns the kind of a refusal, as metrics and the history name it.
func RefusalReason(err error) string {
	if name, ok := reasons[weir.KindOf(err)]; ok {
		return name
	}
	return reasons[weir.Internal]
}

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
