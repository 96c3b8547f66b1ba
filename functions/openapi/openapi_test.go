package openapi_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/functions/openapi"
)

func newFunction(isHidden bool) *openapi.Function {
	return &openapi.Function{IsHidden: isHidden, Logger: slog.New(slog.DiscardHandler)}
}

func get(h http.Handler, etag string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/api/openapi", nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}

	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestFunction(t *testing.T) {
	t.Parallel()
	for contentType, h := range map[string]http.Handler{
		"application/yaml": newFunction(false).YAML(),
		"application/json": newFunction(false).JSON(),
	} {
		w := get(h, "")
		if w.Code != 200 || w.Header().Get("Content-Type") != contentType || w.Body.Len() < 50_000 {
			t.Errorf("%s: got %d %v with %d bytes, want 200 and the document", contentType, w.Code,
				w.Header(), w.Body.Len())
		}

		if again := get(h, w.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 {
			t.Errorf("%s with its ETag: got %d and %d bytes, want status 304 and an empty body",
				contentType, again.Code, again.Body.Len())
		}
	}
}

func TestFunction_JSON(t *testing.T) {
	t.Parallel()
	var document struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}

	w := get(newFunction(false).JSON(), "")
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}

	if document.OpenAPI != "3.1.0" || document.Paths["/api/messages"]["post"] == nil {
		t.Errorf("got OpenAPI %q with %d paths, want 3.1.0 with /api/messages", document.OpenAPI,
			len(document.Paths))
	}
}

func TestFunction_Hidden(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.Handler{"YAML": newFunction(true).YAML(),
		"JSON": newFunction(true).JSON()} {
		if w := get(h, ""); w.Code != 404 ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %v, want 404 and a problem", name, w.Code, w.Header())
		}
	}
}
