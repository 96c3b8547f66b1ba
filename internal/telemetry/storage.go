package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts gives the requests sent to storage so far, under keys of service and operation
// with a space between ("table transact"), and the failed ones under service and reason
// ("table throttled").
type Counts interface {
	Snapshot() map[string]int64
	Failures() map[string]int64
}

var (
	transactionsDesc = prometheus.NewDesc("weir_storage_transactions_total",
		"Requests sent to storage, repeats included.", []string{"service", "operation"}, nil)
	failuresDesc = prometheus.NewDesc("weir_storage_failures_total",
		"Requests to storage that it did not answer, or with throttling, an error of its own or a refusal of our key.", []string{"service", "reason"}, nil)
)

// transactions shows Counts as they are at the moment of the scrape.
type transactions struct{ storage Counts }

// Describe implements prometheus.Collector.
func (transactions) Describe(out chan<- *prometheus.Desc) {
	out <- transactionsDesc
	out <- failuresDesc
}

// Collect implements prometheus.Collector.
func (t transactions) Collect(out chan<- prometheus.Metric) {
	collect(out, transactionsDesc, t.storage.Snapshot())
	failures := t.storage.Failures()
	for _, service := range []string{"table", "queue", "blob"} {
		for _, reason := range []string{"unreached", "throttled", "error", "refused"} {
			name := service + " " + reason
			if _, seen := failures[name]; !seen { // so that the first one is seen as a rise
				collect(out, failuresDesc, map[string]int64{name: 0})
			}
		}
	}
	collect(out, failuresDesc, failures)
}

func collect(out chan<- prometheus.Metric, d *prometheus.Desc, counts map[string]int64) {
	for name, n := range counts {
		service, label, _ := strings.Cut(name, " ")
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), service, label)
	}
}
