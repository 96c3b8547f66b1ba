package metrics_test

import (
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
	h := metrics.New(r)
	for _, want := range []string{"weir_things_total 0\n", "weir_things_total 1\n"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/metrics", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d, and %q is missing in:\n%s", w.Code, want, w.Body)
		}
		c.Inc()
	}
}
