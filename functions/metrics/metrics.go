// Package metrics is the function that shows the process's counters in Prometheus's text
// format: GET /api/metrics. Each instance counts for itself.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// New makes the handler. It may serve concurrently. What could not be gathered is logged.
func New(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)})
}
