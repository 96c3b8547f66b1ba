package httpio_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/httpio"
)

func TestWithTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		httpio.WithTimeout(30*time.Second, hangs).ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("next ended after %s, want 30s", took)
		}
	})
}
