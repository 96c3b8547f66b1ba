package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
	"weir/internal/storage/memory"
)

// triggers are the paths of the functions that only the host is allowed to call.
var triggers = []string{"/process", "/poison", "/sweep", "/inbox"}

var parameter = regexp.MustCompile(`\{[^}]*\}`)

// openapi.yaml describes each method and path that the server answers, and no other. The test sends
// an unknown method to each path. The header Allow of the answer lists the path's methods.
func TestOpenAPI_DescribesEveryAddress(t *testing.T) {
	t.Parallel()
	document, err := openapitest.Read(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}

	var described, served []string
	for _, o := range document.Operations() {
		described = append(described, parameter.ReplaceAllString(o, "x"))
	}

	r := newTestRunning(t)
	asked := map[string]bool{}
	for _, route := range r.listRoutes() {
		pattern, path := route.path, parameter.ReplaceAllString(route.path, "x")
		if slices.Contains(triggers, pattern) || asked[path] {
			continue
		}

		asked[path] = true
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, httptest.NewRequest("BREW", path, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d for an unknown method, want 405", pattern, w.Code)
		}

		for method := range strings.SplitSeq(w.Header().Get("Allow"), ", ") {
			served = append(served, method+" "+path)
		}
	}

	for _, s := range served {
		if !slices.Contains(described, s) {
			t.Errorf("%s is served; want it in internal/openapi/openapi.yaml", s)
		}
	}

	for _, d := range described {
		if !slices.Contains(served, d) {
			t.Errorf("%s is in internal/openapi/openapi.yaml; want it served", d)
		}
	}

	if len(served) < 30 {
		t.Errorf("got %d served operations, want 30 or more", len(served))
	}
}

// The setting openapi: false hides the description at both addresses.
func TestOpenAPI_IsHiddenBySetting(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]int{"": http.StatusOK,
		"openapi: false\n": http.StatusNotFound} {
		r := newTestRunningWith(t, minimal+settings)
		for _, path := range []string{"/api/openapi.yaml", "/api/openapi.json"} {
			w := httptest.NewRecorder()
			r.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("%s with %q: got %d, want %d", path, settings, w.Code, want)
			}
		}
	}
}

// newTestRunning returns the parts of a server. The table and the blobs are in memory.
func newTestRunning(t *testing.T) *running {
	t.Helper()
	return newTestRunningWith(t, minimal)
}

// newTestRunningWith does what newTestRunning does, with the given settings.
func newTestRunningWith(t *testing.T, settings string) *running {
	t.Helper()
	return newTestRunningLogging(t, settings, slog.New(slog.DiscardHandler))
}

// newTestRunningLogging does what newTestRunningWith does, with the given logger.
func newTestRunningLogging(t *testing.T, settings string, log *slog.Logger) *running {
	t.Helper()
	a, err := New(newEnvironment(t, settings), log)
	if err != nil {
		t.Fatal(err)
	}

	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	r := newServerRunning(t.Context(), a, store, nil, func() {})
	t.Cleanup(func() {
		if err := errors.Join(r.closeBackground(context.Background()),
			r.closeWork(context.Background()), r.closeRecords(context.Background())); err != nil {
			t.Error(err)
		}
	})

	return r
}
