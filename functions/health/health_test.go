package health_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/health"
)

func TestFunction(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) (string, error) { return "", nil }
	bad := func(context.Context) (string, error) { return "the table cannot be read", errors.New("dial 10.0.0.1") }
	for name, c := range map[string]struct {
		checks map[string]health.Check
		status int
		says   string
	}{
		"OK": {map[string]health.Check{"storage": ok}, 200, `"storage":{"ok":true}`},
		"Down": {map[string]health.Check{"storage": bad, "clock": ok}, 503,
			`"storage":{"ok":false,"detail":"the table cannot be read"}`},
	} {
		w := httptest.NewRecorder()
		(&health.Function{Checks: c.checks}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/health", nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) ||
			strings.Contains(w.Body.String(), "10.0.0.1") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
