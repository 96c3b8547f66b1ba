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
		t.Errorf("%d %v, %d bytes", w.Code, w.Header(), w.Body.Len())
	}
	r := httptest.NewRequest(http.MethodGet, "/api/openapi.yaml", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	if h.ServeHTTP(again, r); again.Code != 304 || again.Body.Len() > 0 {
		t.Errorf("%d, %d bytes", again.Code, again.Body.Len())
	}
}
