package metrics_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"weir/functions/metrics"
)

func TestNew(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_things_total", Help: "Things."})
	r.MustRegister(c)
	h := metrics.New(r, slog.New(slog.DiscardHandler))
	for _, want := range []string{"weir_things_total 0\n", "weir_things_total 1\n"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/metrics", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("got %d without %q:\n%s", w.Code, want, w.Body)
		}
		c.Inc()
	}
}

func TestNew_LogsAMetricThatCannotBeRead(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	broken := prometheus.NewRegistry()
	broken.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_fine", Help: "Fine."},
		func() float64 { return 1 }), failing{})
	w := httptest.NewRecorder()
	metrics.New(broken, slog.New(slog.NewJSONHandler(&log, nil))).ServeHTTP(w,
		httptest.NewRequest(http.MethodGet, "/api/metrics", nil))

	if w.Code != http.StatusInternalServerError ||
		!strings.Contains(log.String(), "the disk is full") {
		t.Errorf("got %d, logged %q, want 500 and the reason", w.Code, &log)
	}
}

// failing is a metric that returns an error instead of a value.
type failing struct{}

var description = prometheus.NewDesc("weir_failing", "Fails.", nil, nil)

func (failing) Describe(ch chan<- *prometheus.Desc) { ch <- description }
func (failing) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(description, errors.New("the disk is full"))
}
