// Package metrics is the function that answers with the process's counters in Prometheus's text format:
// GET /api/metrics. Each instance has its own counters.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// New returns the handler. It is safe for concurrent use, and logs an error for metrics that cannot be
// gathered.
func New(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)})
}
