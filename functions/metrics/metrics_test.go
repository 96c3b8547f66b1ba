package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/metrics"
)

type counts map[string]int64

func (c counts) Snapshot() map[string]int64 { return c }

func TestNew(t *testing.T) {
	t.Parallel()
	c := counts{"table transact": 3}
	h := metrics.New(c)
	scrape := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/metrics", nil))
		if w.Code != http.StatusOK {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	for _, want := range []string{`weir_storage_transactions_total{operation="transact",service="table"} 3`, "go_goroutines ", "process_resident_memory_bytes "} {
		if text := scrape(); !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	c["queue put"] = 1
	if want := `weir_storage_transactions_total{operation="put",service="queue"} 1`; !strings.Contains(scrape(), want) {
		t.Errorf("%q is missing in a later scrape", want)
	}
}
