// Package openapi has the description of the HTTP API, openapi.yaml, in OpenAPI 3.1. The package
// openapitest compares Weir's answers with it.
package openapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"

	"weir/internal/httpio"
)

// Document is openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte

// Handler returns a handler that serves the document.
func Handler() http.Handler {
	sum := sha256.Sum256(Document)
	version := hex.EncodeToString(sum[:8])
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		if httpio.NotModified(w, r, version) {
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Write(Document) // if this fails, the client has disconnected
	})
}
