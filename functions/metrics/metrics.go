// Package metrics is the function that answers with the process's metrics in Prometheus's text
// format: GET /api/metrics. Each instance answers with its own metrics.
package metrics

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// New returns the handler, which is safe for concurrent use. If metrics cannot be gathered, the
// handler answers 500 and logs the error.
func New(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)})
}
