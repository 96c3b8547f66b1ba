// Package openapitest checks in tests whether Weir's HTTP API behaves as the OpenAPI document says.
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

// Document is a parsed OpenAPI document. It is safe for concurrent use.
type Document struct {
	root       map[string]any
	operations []operation

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

// operation is one method of one path.
type operation struct {
	method string
	path   []string       // segments of the path, including wildcards such as {id}
	item   map[string]any // the document's object for the path, with all methods
	self   map[string]any // the document's object for the operation
	place  string         // JSON pointer to the operation
}

// methods are the keys of operations in the document's object for a path.
var methods = []string{"get", "put", "post", "delete", "patch", "head"}

// resource is the document's name in the schema compiler.
const resource = "weir:openapi"

// Read parses a document. It returns an error in these cases:
//   - A reference has no target.
//   - A key has no value.
//   - A schema in components/schemas is not valid.
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

	tighten(root)
	d := &Document{root: root, compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(resource, root); err != nil {
		return nil, err
	}

	return d, d.indexOperations()
}

// indexOperations lists the document's operations, and checks the references, keys and schemas for
// Read.
func (d *Document) indexOperations() error {
	for path, item := range asObject(d.root["paths"]) {
		for _, method := range methods {
			if self := asObject(asObject(item)[method]); self != nil {
				d.operations = append(d.operations, operation{
					method: strings.ToUpper(method), path: strings.Split(path, "/"),
					item: asObject(item), self: self,
					place: "/paths/" + escapePointer(path) + "/" + method})
			}
		}
	}

	slices.SortFunc(d.operations,
		func(a, b operation) int { return strings.Compare(a.place, b.place) })
	if err := d.checkEach(d.root); err != nil {
		return err
	}

	for name := range asObject(asObject(d.root["components"])["schemas"]) {
		if _, err := d.compileSchema("/components/schemas/" + escapePointer(name)); err != nil {
			return err
		}
	}

	return nil
}

// checkEach returns an error if a reference in v has no target, or if a key in v has no value.
// Missing quotes can cause such a key: YAML reads {text: one, two} as the key "text" with the value
// "one", and the key "two" without a value.
func (d *Document) checkEach(v any) error {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			if target, _ := d.followRef(ref); target == nil {
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

// Operations returns the method and path of each operation, such as "GET /api/lanes".
func (d *Document) Operations() []string {
	var out []string
	for _, o := range d.operations {
		out = append(out, o.fullName())
	}
	return out
}

func (o *operation) fullName() string { return o.method + " " + strings.Join(o.path, "/") }

// Function returns the name of the Azure function that serves an operation, and whether callers
// need no key. The argument "name" is an element of Operations. If the document names no function
// for the operation, Function returns "".
func (d *Document) Function(name string) (function string, keyless bool) {
	for _, o := range d.operations {
		if o.fullName() == name {
			function, _ = o.self["x-function"].(string)
			security, own := o.self["security"].([]any)
			return function, own && len(security) == 1 && len(asObject(security[0])) == 0
		}
	}

	return "", false
}

// resolveRef returns the object v or, if v is a reference, the reference's target. It also returns
// a JSON pointer to the returned object. The argument "place" is the JSON pointer to v.
func (d *Document) resolveRef(v any, place string) (map[string]any, string) {
	o := asObject(v)
	if ref, ok := o["$ref"].(string); ok {
		return d.followRef(ref)
	}
	return o, place
}

// followRef returns the target of a reference, and a JSON pointer to the target. If the target does
// not exist, followRef returns nil for the target.
func (d *Document) followRef(ref string) (map[string]any, string) {
	place, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, ""
	}

	at := d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
		at = asObject(at[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)])
	}

	return at, place
}

// compileSchema returns the compiled schema at a JSON pointer. The compiler keeps compiled schemas.
func (d *Document) compileSchema(place string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile(resource + "#" +
		strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(place))
}

// validateJSON validates data by the schema at the JSON pointer "place".
func (d *Document) validateJSON(place string, data []byte) error {
	schema, err := d.compileSchema(place)
	if err != nil {
		return err
	}

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}

	return schema.Validate(value)
}

// validateText validates the text of a header or parameter by the schema at the JSON pointer
// "place". The text is valid if the schema allows it as a string. If the text is JSON, such as a
// number, the text is also valid if the schema allows the JSON value.
func (d *Document) validateText(place, text string) error {
	schema, err := d.compileSchema(place)
	if err != nil {
		return err
	}

	failed := schema.Validate(text)
	var meant any
	if failed != nil && json.Unmarshal([]byte(text), &meant) == nil &&
		schema.Validate(meant) == nil {
		return nil
	}

	return failed
}

func asObject(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

// escapePointer escapes one step of a JSON pointer.
func escapePointer(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }

// HasBody reports whether the requests of an operation have a body. The argument "name" is an
// element of Operations.
func (d *Document) HasBody(name string) bool {
	for _, o := range d.operations {
		if o.fullName() == name {
			return o.self["requestBody"] != nil
		}
	}
	return false
}
