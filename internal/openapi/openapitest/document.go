// Package openapitest holds what Weir answers against its description, so that neither
// changes without the other.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is a description that can be asked, concurrently too.
type Document struct {
	root       map[string]any
	operations []operation

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

// operation is what may be done at one address.
type operation struct {
	method string
	path   []string // segments; those in braces stand for any
	item   map[string]any
	self   map[string]any
	place  string // JSON pointer
}

// methods are the keys of a path that are operations.
var methods = []string{"get", "put", "post", "delete", "patch", "head"}

// resource is the name the document has among schemas.
const resource = "weir:openapi"

// Read reads a document. Every reference in it must lead somewhere, and every schema must
// be one.
func Read(source []byte) (*Document, error) {
	data, err := yaml.YAMLToJSON(source)
	if err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	root, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the document is a %T", value)
	}
	d := &Document{root: root, compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(resource, root); err != nil {
		return nil, err
	}
	return d, d.index()
}

// index lists the operations and checks the rest.
func (d *Document) index() error {
	for path, item := range object(d.root["paths"]) {
		for _, method := range methods {
			if self := object(object(item)[method]); self != nil {
				d.operations = append(d.operations, operation{
					method: strings.ToUpper(method), path: strings.Split(path, "/"), item: object(item), self: self,
					place: "/paths/" + escape(path) + "/" + method})
			}
		}
	}
	slices.SortFunc(d.operations, func(a, b operation) int { return strings.Compare(a.place, b.place) })
	if err := d.checkEach(d.root); err != nil {
		return err
	}
	for name := range object(object(d.root["components"])["schemas"]) {
		if _, err := d.schema("/components/schemas/" + escape(name)); err != nil {
			return err
		}
	}
	return nil
}

// checkEach looks for references that lead nowhere, and for keys without a value: a comma in
// a text without quotation marks makes one of what follows it.
func (d *Document) checkEach(v any) error {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			if target, _ := d.follow(ref); target == nil {
				return fmt.Errorf("%s leads nowhere", ref)
			}
		}
		for key, each := range v {
			if each == nil {
				return fmt.Errorf("%q has no value", key)
			}
			if err := d.checkEach(each); err != nil {
				return err
			}
		}
	case []any:
		for _, each := range v {
			if err := d.checkEach(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// Operations lists what the document describes: method, space, path.
func (d *Document) Operations() []string {
	var out []string
	for _, o := range d.operations {
		out = append(out, o.name())
	}
	return out
}

func (o *operation) name() string { return o.method + " " + strings.Join(o.path, "/") }

// Function says which function serves an operation, and whether it asks for no key.
func (d *Document) Function(name string) (function string, keyless bool) {
	for _, o := range d.operations {
		if o.name() == name {
			function, _ = o.self["x-function"].(string)
			security, own := o.self["security"].([]any)
			return function, own && len(security) == 1 && len(object(security[0])) == 0
		}
	}
	return "", false
}

// resolve gives an object, or what it refers to, with its place.
func (d *Document) resolve(v any, place string) (map[string]any, string) {
	o := object(v)
	if ref, ok := o["$ref"].(string); ok {
		return d.follow(ref)
	}
	return o, place
}

func (d *Document) follow(ref string) (map[string]any, string) {
	place, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, ""
	}
	at := d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
		at = object(at[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)])
	}
	return at, place
}

// schema compiles the schema at a place. Equal ones are compiled once.
func (d *Document) schema(place string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile(resource + "#" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(place))
}

// validate holds JSON against the schema at a place.
func (d *Document) validate(place string, data []byte) error {
	schema, err := d.schema(place)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	return schema.Validate(value)
}

// validateText holds the text of a header or parameter against a schema. It is tried as
// text, and as the number or truth it may mean.
func (d *Document) validateText(place, text string) error {
	schema, err := d.schema(place)
	if err != nil {
		return err
	}
	failed := schema.Validate(text)
	var meant any
	if failed != nil && json.Unmarshal([]byte(text), &meant) == nil && schema.Validate(meant) == nil {
		return nil
	}
	return failed
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

// escape makes a step of a JSON pointer.
func escape(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }
