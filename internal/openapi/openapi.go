// Package openapi has the OpenAPI 3.1 document of Weir's HTTP API, openapi.yaml.
//
// The document keeps to a profile that the common generators of clients understand; see the tests
// of this package, and tools/openapi/profile.yaml.
package openapi

import (
	_ "embed"
	"sync"

	"github.com/goccy/go-yaml"
)

// Document is the content of openapi.yaml.
//
//go:embed openapi.yaml
var Document []byte

// JSON returns the document as JSON, with its fields in the same order. Some generators of clients
// read YAML by rules of their own; JSON has only one reading.
var JSON = sync.OnceValues(func() ([]byte, error) { return yaml.YAMLToJSON(Document) })
