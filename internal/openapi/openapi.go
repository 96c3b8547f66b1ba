// Package openapi has the OpenAPI 3.1 document of Weir's HTTP API, openapi.yaml.
package openapi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"

	"weir/internal/httpio"
)

// Document is the content of openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte

// Handler returns a handler that serves Document.
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
		w.Write(Document) // an error only means that the client has disconnected
	})
}
