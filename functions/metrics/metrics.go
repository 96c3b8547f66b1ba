// Package metrics is the function that shows the process's counters in Prometheus's text
// format: GET /api/metrics. Each instance counts for itself.
package metrics

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Counts gives the requests sent to storage so far, under keys of service and operation
// with a space between: "table transact".
type Counts interface {
	Snapshot() map[string]int64
}

// New makes the handler, on a registry of its own: nothing that a library registers by
// itself is shown. It may serve concurrently.
func New(storage Counts) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		transactions{storage},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

var transactionsDesc = prometheus.NewDesc("weir_storage_transactions_total",
	"Requests sent to storage, repeats included.", []string{"service", "operation"}, nil)

// transactions shows Counts as they are at the moment of the scrape.
type transactions struct{ storage Counts }

// Describe implements prometheus.Collector.
func (transactions) Describe(out chan<- *prometheus.Desc) { out <- transactionsDesc }

// Collect implements prometheus.Collector.
func (t transactions) Collect(out chan<- prometheus.Metric) {
	for name, n := range t.storage.Snapshot() {
		service, operation, _ := strings.Cut(name, " ")
		out <- prometheus.MustNewConstMetric(transactionsDesc, prometheus.CounterValue, float64(n), service, operation)
	}
}
