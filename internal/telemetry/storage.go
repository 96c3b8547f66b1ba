package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts has the numbers of requests to storage.
type Counts interface {
	// Snapshot returns the number of requests, by service and operation, such as "table transact".
	Snapshot() map[string]int64
	// Failures returns the number of failed requests, by service and reason, such as "table
	// throttled". A conditional write whose condition does not hold is not a failure.
	Failures() map[string]int64
}

var (
	transactionsDesc = prometheus.NewDesc("weir_storage_transactions_total",
		"Requests sent to storage, repeats included.", []string{"service", "operation"}, nil)
	failuresDesc = prometheus.NewDesc("weir_storage_failures_total",
		"Requests to storage that got no answer, were throttled, failed by an error of storage, or lacked permission.",
		[]string{"service", "reason"}, nil)
)

// storageCollector reads Counts at each scrape.
type storageCollector struct{ storage Counts }

// Describe implements prometheus.Collector.
func (storageCollector) Describe(out chan<- *prometheus.Desc) {
	out <- transactionsDesc
	out <- failuresDesc
}

// Collect implements prometheus.Collector.
func (t storageCollector) Collect(out chan<- prometheus.Metric) {
	collectCounts(out, transactionsDesc, t.storage.Snapshot())
	failures := t.storage.Failures()
	for _, service := range []string{"table", "queue", "blob"} {
		for _, reason := range []string{"unreached", "throttled", "error", "refused"} {
			name := service + " " + reason
			// 0 makes the first failure visible as an increase
			if _, seen := failures[name]; !seen {
				collectCounts(out, failuresDesc, map[string]int64{name: 0})
			}
		}
	}

	collectCounts(out, failuresDesc, failures)
}

func collectCounts(out chan<- prometheus.Metric, d *prometheus.Desc, counts map[string]int64) {
	for name, n := range counts {
		service, label, _ := strings.Cut(name, " ")
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), service, label)
	}
}
