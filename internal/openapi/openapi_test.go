package openapi_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"weir/internal/openapi"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	h := openapi.Handler()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/openapi.yaml", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/yaml" ||
		!bytes.Equal(w.Body.Bytes(), openapi.Document) {
		t.Errorf("got %d %v with %d bytes, want 200, application/yaml and the document of %d bytes",
			w.Code, w.Header(), w.Body.Len(), len(openapi.Document))
	}
	r := httptest.NewRequest(http.MethodGet, "/api/openapi.yaml", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	if h.ServeHTTP(again, r); again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("with its ETag: got %d and %d bytes, want status 304 and an empty body", again.Code, again.Body.Len())
	}
}
