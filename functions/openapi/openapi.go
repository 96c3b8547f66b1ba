// Package openapi is the function that shows the description of the API: GET /api/openapi.yaml and
// /api/openapi.json. Callers need no key. A key opens more than a description, and generators of
// clients write the address that they read into files that developers share.
package openapi

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/openapi"
)

// Function answers with the OpenAPI document.
type Function struct {
	// IsHidden makes both addresses answer 404; see the setting openapi.
	IsHidden bool
	Logger   *slog.Logger
}

// YAML returns the handler of GET /api/openapi.yaml.
func (f *Function) YAML() http.Handler {
	return f.serve("application/yaml", func() ([]byte, error) { return openapi.Document, nil })
}

// JSON returns the handler of GET /api/openapi.json.
func (f *Function) JSON() http.Handler { return f.serve("application/json", openapi.JSON) }

func (f *Function) serve(contentType string, read func() ([]byte, error)) http.Handler {
	if f.IsHidden {
		return httpio.NotFound(f.Logger)
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, err := read()
		if err != nil {
			httpio.WriteError(w, r, f.Logger, err)
			return
		}

		sum := sha256.Sum256(document)
		w.Header().Set("Cache-Control", "no-cache")
		if httpio.NotModified(w, r, hex.EncodeToString(sum[:8])) {
			return
		}

		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(document) // an error only means that the client has disconnected
	})
}
